// `logitgate prefill`: token batches through the model as batched GEMMs, logits into a dump.
// Contract: what it does is in engine_verb.h; here are its help and its phase.
#include "cmd/engine_verb.h"

namespace logitgate {

Verb add_prefill(CLI::App& app) {
  app.footer(
      "Example:\n"
      "  echo '{\"id\": \"p0\", \"tokens\": [72, 101, 108, 108, 111]}' > prompts.jsonl\n"
      "  logitgate prefill prompts.jsonl -m model.gguf --rows all -o prefill.zst\n"
      "  logitgate prefill - -m model.gguf -o - < prompts.jsonl | logitgate gate decode.zst -");
  return add_engine_verb(app, Phase::prefill);
}

}  // namespace logitgate
