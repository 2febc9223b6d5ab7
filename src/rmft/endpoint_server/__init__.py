"""An endpoint of the OpenAI protocol around a local language model: chat completions, files, fine-tuning jobs."""

from rmft.endpoint_server.settings import ServerSettings

__all__ = ["ServerSettings", "serve"]


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raise InputError if the server cannot start."""
    from rmft.endpoint_server.server import serve as run  # imports the large libraries

    run(settings)
