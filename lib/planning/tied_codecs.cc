#include "lib/planning/tied_codecs.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lib/compression/registry.h"
#include "lib/compression/rows.h"
#include "lib/planning/codec_adapter.h"

namespace fusionllm::planning {
namespace {

using compression::CodecKind;

constexpr int64_t kBytesOfText = 256;  // what a text may have for tokens, whatever the vocabulary

struct Choices {
  std::vector<CodecKind> kinds;
  std::string why;  // there is one
};

Choices ChoicesOf(const job::Spec& spec) {
  const job::Compression& compression = spec.compression;
  const auto one = [](CodecKind kind, const char* why) { return Choices{.kinds = {kind}, .why = why}; };
  if (compression.policy == job::CompressionPolicy::kNone) return one(CodecKind::kExact, "spec.compression.policy is none");
  if (spec.strategy.replicas != 1) {
    return one(CodecKind::kExact, "with spec.strategy.replicas other than 1 gradients of tied parameters are exchanged as they are");
  }
  if (const auto named = compression.tied_gradients.kind; named.has_value()) return one(*named, "spec.compression.tiedGradients");
  if (compression.policy == job::CompressionPolicy::kUniform) {
    return one(CodecKind::kExact, "policy uniform compresses them where spec.compression.tiedGradients says so");
  }
  // Error feedback hands what a step with a far larger gradient lost to the next ones (docs/results/tied-gradients.md).
  if (spec.training.gradient_clip_norm <= 0) {
    return one(CodecKind::kExact,
               "gradients are not clipped (spec.training.gradientClipNorm), so that they are compressed only where "
               "spec.compression.tiedGradients says so");
  }
  const CodecKind last = PolicyOf(spec).LastLevel();
  Choices choices{.kinds = {}, .why = "spec.compression allows no other"};
  for (const compression::Codec* codec : compression::Codecs()) {
    if (codec->traits.tied_loss_increase.has_value() && codec->traits.kind <= last) choices.kinds.push_back(codec->traits.kind);
  }
  return choices;
}

// Rows of a use's gradient that may be other than zero.
int64_t OccupiedRows(const workload::Workload& workload, const opdag::Op& op, opdag::ParameterId parameter, int64_t rows) {
  if (op.kind != opdag::OpKind::kEmbedding || op.parameters.front() != parameter) return rows;
  const int64_t tokens = workload.training.graph.value(op.inputs.front()).type.elements() * workload.micro_batches;
  const int64_t kinds = workload.data.kind == data::DatasetKind::kText ? std::min(rows, kBytesOfText) : rows;
  return std::min(kinds, tokens);
}

}  // namespace

double TiedLossIncrease(CodecKind kind) { return compression::CodecOf(kind).traits.tied_loss_increase.value_or(0); }

void AddTiedCodecs(const workload::Workload& workload, scheduler::PlanRequest& request) {
  const opdag::Graph& graph = workload.training.graph;
  const Choices choices = ChoicesOf(workload.job.spec);
  request.max_loss_cost = workload.job.spec.compression.max_loss_increase;
  for (scheduler::TiedParameter& tied : request.tied) {
    const opdag::ParameterId parameter = graph.FindParameter(tied.name);
    const tensor::TensorType& type = graph.parameter(parameter).type;
    const int64_t rows = type.shape.rank() < 2 ? 1 : type.shape.dim(0);
    const int64_t columns = rows > 0 ? type.elements() / rows : 0;
    tied.codecs.clear();
    tied.codecs_why = choices.why;
    for (const CodecKind kind : choices.kinds) {
      scheduler::TiedCodec& codec = tied.codecs.emplace_back();
      codec.codec = std::string(compression::Name(kind));
      codec.loss_cost = TiedLossIncrease(kind);
      for (const int op : tied.ops) {
        const int64_t occupied = OccupiedRows(workload, graph.op(op), parameter, rows);
        codec.bytes.push_back(compression::EncodedRowsBytes({.kind = kind}, rows, columns, occupied));
      }
    }
  }
}

compression::Policy LinkPolicyOf(const workload::Workload& workload) {
  compression::Policy policy = PolicyOf(workload.job.spec);
  double lossiest = 0;
  for (const CodecKind kind : ChoicesOf(workload.job.spec).kinds) lossiest = std::max(lossiest, TiedLossIncrease(kind));
  std::map<opdag::ParameterId, int> uses;
  for (const autodiff::ParameterUse& use : workload.training.uses) ++uses[use.parameter];
  const auto tied = std::count_if(uses.begin(), uses.end(), [](const auto& of) { return of.second > 1; });
  policy.reserved_loss = std::min(policy.max_loss_increase / 2, lossiest * static_cast<double>(tied));
  return policy;
}

}  // namespace fusionllm::planning
