#include "lib/compression/loss_prior.h"

#include "lib/compression/registry.h"

namespace fusionllm::compression {

using opdag::ActivationKind;

CodecSpec AllowedCodec(const CodecSpec& spec, ActivationKind kind) {
  if (kind == ActivationKind::kData) return Exact();
  const CodecKind allowed = CodecOf(spec.kind).traits.for_loss_inputs;
  if (kind == ActivationKind::kLossInput && allowed != spec.kind) return {.kind = allowed};
  return spec;
}

double ExpectedLossIncrease(const CodecSpec& spec, ActivationKind kind, int64_t steps) {
  const CodecSpec allowed = AllowedCodec(spec, kind);
  return CodecOf(allowed.kind).ExpectedLossIncrease(allowed, kind, steps);
}

}  // namespace fusionllm::compression
