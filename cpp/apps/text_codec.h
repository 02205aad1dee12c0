// Text <-> ids for the trainer, from a Harris tokenizer: the same in the binary and in Python.
#pragma once

#include "engine/config/experiment.h"
#include "engine/run/trainer.h"
#include "tokenizer/tokenizer.h"

namespace andrea {

/// ConfigError if the tokenizer has another number of ids than `experiment` says. The tokenizer must outlive
/// the codec.
TextCodec text_codec(const Tokenizer& tokenizer, const Experiment& experiment);

}  // namespace andrea
