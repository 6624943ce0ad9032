"""The choice of an attention kernel for a whole body."""

from unmask.nn.layers.block import SelfAttention


def set_kernel(body, kernel):
    """Set the kernel of every self-attention inside a module, in place, and return the module."""
    for module in body.modules():
        if isinstance(module, SelfAttention):
            module.kernel = kernel
    return body
