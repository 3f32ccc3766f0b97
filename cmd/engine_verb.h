// What prefill and decode-prime share: options, inputs and outputs of a run of the engine.
// Contract: everything that can be refused is refused before compute starts and before an output is created.
#pragma once

#include "cmd/verbs.h"
#include "lib/token_batch.h"

namespace logitgate {

Verb add_engine_verb(CLI::App& app, Phase phase);

}  // namespace logitgate
