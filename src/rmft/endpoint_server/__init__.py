"""An endpoint that speaks the OpenAI protocol, around a local language model: it really replies and fine-tunes."""

from rmft.endpoint_server.settings import ServerSettings

__all__ = ["ServerSettings", "serve"]


def serve(settings: ServerSettings) -> None:
    """Answer until SIGTERM or SIGINT. Raise InputError where that cannot be."""
    from rmft.endpoint_server.server import serve as run  # with it the large libraries are imported

    run(settings)
