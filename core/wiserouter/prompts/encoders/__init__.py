"""From a text to the vector that contexts are made of.

Importing this package loads none of scikit-learn, scipy, onnxruntime and tokenizers: they load when they are used.
"""

from wiserouter.prompts.encoders.base import Encoder
from wiserouter.prompts.encoders.registry import EncoderLike, encoder_from_state, open_encoder

__all__ = ["Encoder", "EncoderLike", "encoder_from_state", "open_encoder"]
