"""Makes torch know the backend "wiresum".

torch loads this module through the entry point group "torch.backends" at the end of `import torch`, so that a script
needs no line of ours. It must stay light, and must not fail: an error here would break torch for its whole environment.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch.distributed as dist

BACKEND: Final = "wiresum"


def _create(options: Any, pg_options: Any) -> "dist.ProcessGroup":
    from host.pytorch.backend import create_group

    return create_group(options, pg_options)


def register() -> None:
    """Registers the backend "wiresum" with torch.distributed; doing it again changes nothing.

    Only needed where torch does not load installed backends by itself (TORCH_DEVICE_BACKEND_AUTOLOAD=0, or wiresum run
    from a checkout that is not installed).
    """
    import torch.distributed as dist

    if not dist.is_available() or BACKEND in dist.Backend.backend_list:
        return
    # A list: torch iterates over a plain string character by character.
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu"])
