// Attention of one token for each conversation, over the keys and values in its window: see compiled.py.
//
// query, mixed: (count, heads, SIZE). keys, values: (count, heads, slots, SIZE). first: (count,), the slot of the oldest
// token in the window, which goes on in slot 0 after the last slot.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace {

constexpr int LANES = 8;  // of a vector register of AVX2

float exponential(float x) {  // of x <= 0, within 2e-7: 2^whole times a polynomial for the rest
    const float exponent = std::max(x * 1.44269504f, -126.0f), whole = std::floor(exponent + 0.5f);
    const float rest = exponent - whole;
    float power = 1.535336188319500e-4f;
    for (float c : {1.339887440266574e-3f, 9.618437357674640e-3f, 5.550332471162809e-2f, 2.402264791363012e-1f,
                    6.931472028550421e-1f, 1.0f})
        power = power * rest + c;
    const int bits = (static_cast<int>(whole) + 127) << 23;
    float factor;
    std::memcpy(&factor, &bits, sizeof factor);
    return power * factor;
}

void multiply(const float *query, const float *keys, long count, float *scores) {
    for (long slot = 0; slot < count; slot++) {
        float sums[LANES] = {0};
        for (int i = 0; i < SIZE; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                sums[lane] += query[i + lane] * keys[slot * SIZE + i + lane];
        scores[slot] = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    }
}

void add_weighted(const float *weights, const float *values, long count, float *mixed) {
    for (long slot = 0; slot < count; slot++)
        for (int i = 0; i < SIZE; i++)
            mixed[i] += weights[slot] * values[slot * SIZE + i];
}

}  // namespace

extern "C" void attend(const float *query, const float *keys, const float *values, const long *first, float *mixed,
                       long count, long heads, long slots, long window, float scaling) {
    std::vector<float> scores(window);
    for (long row = 0; row < count; row++) {
        const long begin = first[row], before = std::min(window, slots - begin);
        for (long head = row * heads; head < (row + 1) * heads; head++) {
            const float *own_keys = keys + head * slots * SIZE, *own_values = values + head * slots * SIZE;
            float scaled[SIZE], sums[SIZE] = {0}, total = 0;
            for (int i = 0; i < SIZE; i++) scaled[i] = query[head * SIZE + i] * scaling;
            multiply(scaled, own_keys + begin * SIZE, before, scores.data());
            multiply(scaled, own_keys, window - before, scores.data() + before);
            const float largest = *std::max_element(scores.begin(), scores.end());
            for (float &score : scores) score = exponential(score - largest);
            for (float score : scores) total += score;
            add_weighted(scores.data(), own_values + begin * SIZE, before, sums);
            add_weighted(scores.data() + before, own_values, window - before, sums);
            for (int i = 0; i < SIZE; i++) mixed[head * SIZE + i] = sums[i] / total;
        }
    }
}
