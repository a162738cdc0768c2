"""Encoders: from a text to the vector that is assigned to a context.

Importing this package loads none of scikit-learn, scipy, onnxruntime and tokenizers: they load on first use.
"""

from wiserouter.prompts.encoders.base import Encoder
from wiserouter.prompts.encoders.registry import EncoderLike, encoder_from_state, open_encoder

__all__ = ["Encoder", "EncoderLike", "encoder_from_state", "open_encoder"]
