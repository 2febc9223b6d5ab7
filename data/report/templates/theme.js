// The theme: the reader's system decides until the button is pressed; a page from a disk may not be allowed to remember.
const remember = { get: () => { try { return localStorage.getItem("rmft-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("rmft-theme", value); } catch { /* then not */ } } };
const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const themeButton = document.querySelector("#theme");
const setTheme = (theme) => {
  if (theme) document.documentElement.dataset.theme = theme;
  themeButton.textContent = dark() ? "Light" : "Dark";
};
setTheme(remember.get());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme());
themeButton.addEventListener("click", () => { const next = dark() ? "light" : "dark"; remember.set(next); setTheme(next); });
