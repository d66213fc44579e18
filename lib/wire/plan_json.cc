#include "lib/wire/plan_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/spec.h"
#include "lib/opdag/activation_kind.h"
#include "lib/schedule/pipeline_schedule.h"
#include "lib/wire/json_reader.h"

namespace fusionllm::wire {
namespace {

using nlohmann::json;

constexpr size_t kMaxReasonBytes = 4096;
constexpr size_t kMaxBounds = 32;
constexpr size_t kMaxMicroBatchSizes = 1'000;
constexpr double kMaxSeconds = 1e12;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;
constexpr size_t kMaxLinks = 200'000;
constexpr size_t kMaxSentences = 100'000;
constexpr size_t kMaxMessageBytes = 64 << 10;
constexpr size_t kMaxWarnings = 1'000;
constexpr int64_t kMaxSteps = int64_t{1} << 50;

json ToJson(const plan::Stage& stage) {
  json out = {{"index", stage.index},
              {"devices", stage.devices},
              {"ops", stage.ops},
              {"compute_seconds", stage.compute_seconds},
              {"forward_seconds", stage.forward_seconds},
              {"backward_seconds", stage.backward_seconds},
              {"codec_seconds", stage.codec_seconds},
              {"update_seconds", stage.update_seconds},
              {"in_flight", stage.in_flight},
              {"memory_bytes", stage.memory_bytes},
              {"device_memory_bytes", stage.device_memory_bytes},
              {"busy_ratio", stage.busy_ratio}};
  if (stage.devices.size() == 1) return out;
  out["sync_bytes"] = stage.sync_bytes;
  out["chain"] = stage.chain;
  out["chunk_bytes"] = stage.chunk_bytes;
  out["by_replica"] = json::array();
  for (const plan::Replica& replica : stage.by_replica) {
    out["by_replica"].push_back({{"compute_seconds", replica.compute_seconds},
                                 {"codec_seconds", replica.codec_seconds},
                                 {"update_seconds", replica.update_seconds},
                                 {"in_flight", replica.in_flight},
                                 {"memory_bytes", replica.memory_bytes}});
  }
  return out;
}

json ToJson(const plan::Link& link) {
  return {{"src", link.src},
          {"dst", link.dst},
          {"src_stage", link.src_stage},
          {"dst_stage", link.dst_stage},
          {"direction", link.backward ? "backward" : "forward"},
          {"dense_bytes", link.dense_bytes},
          {"bytes", link.bytes},
          {"tied_bytes", link.tied_bytes},
          {"codec", link.codec},
          {"dtype", link.dtype},
          {"ratio", link.ratio},
          {"seconds", link.seconds},
          {"loss_cost", link.loss_cost},
          {"reason", link.reason},
          {"values", link.values},
          {"value_kinds", link.value_kinds}};
}

json ToJson(const plan::Plan& plan) {
  json document = {{"strategy", plan.strategy},
                   {"predicted_step_seconds", plan.predicted_step_seconds},
                   {"lower_bound_seconds", plan.lower_bound_seconds},
                   {"gap", plan.gap},
                   {"micro_batches", plan.micro_batches},
                   {"micro_batch_size", plan.micro_batch_size},
                   {"in_flight", plan.in_flight},
                   {"schedule", plan.schedule},
                   {"recompute", plan.recompute},
                   {"graph_hash", plan.graph_hash},
                   {"replicas", plan.replicas},
                   {"sync_seconds", plan.sync_seconds},
                   {"sync_bytes", plan.sync_bytes},
                   {"stages", json::array()},
                   {"links", json::array()},
                   {"tied", json::array()},
                   {"fitted_share", plan.fitted_share},
                   {"specified_share", plan.specified_share},
                   {"specifications", plan.specifications},
                   {"fitted_relative_error", plan.fitted_relative_error},
                   {"left_out", plan.left_out},
                   {"search_cpu_seconds", plan.search_cpu_seconds},
                   {"unit", plan.unit},
                   {"tokens_per_second", plan.tokens_per_second},
                   {"samples_per_second", plan.samples_per_second},
                   {"steps", plan.steps},
                   {"total_seconds", plan.TotalSeconds()},
                   {"parameters", plan.parameters},
                   {"tokens_per_step", plan.tokens_per_step},
                   {"site_bytes", plan.site_bytes},
                   {"total_site_bytes", static_cast<double>(plan.site_bytes) * static_cast<double>(plan.steps)},
                   {"loss_cost", plan.loss_cost},
                   {"loss_cost_source", plan.loss_cost_source},
                   {"bottleneck", plan.bottleneck},
                   {"warnings", json::array()}};
  for (const plan::Warning& warning : plan.warnings) {
    document["warnings"].push_back({{"reason", warning.reason}, {"message", warning.message}});
  }
  for (const plan::Stage& stage : plan.stages) document["stages"].push_back(ToJson(stage));
  for (const plan::Link& link : plan.links) document["links"].push_back(ToJson(link));
  for (const plan::TiedParameter& tied : plan.tied) {
    document["tied"].push_back({{"parameter", tied.parameter},
                                {"stages", tied.stages},
                                {"bytes", tied.bytes},
                                {"seconds", tied.seconds},
                                {"wire_bytes", tied.wire_bytes},
                                {"codec", tied.codec},
                                {"loss_cost", tied.loss_cost},
                                {"reason", tied.reason}});
  }
  document["lower_bounds"] = json::array();
  for (const plan::LowerBound& bound : plan.lower_bounds) {
    document["lower_bounds"].push_back({{"name", bound.name}, {"seconds", bound.seconds}, {"holds", bound.holds}, {"why", bound.why}});
  }
  if (plan.replicas > 1) document["micro_batches_by_replica"] = plan.micro_batches_by_replica;
  for (const plan::MicroBatchSize& other : plan.micro_batch_sizes) {
    json entry = {{"size", other.size}, {"predicted_step_seconds", other.predicted_step_seconds}};
    if (!other.refused.empty()) entry["refused"] = other.refused;
    document["micro_batch_sizes"].push_back(std::move(entry));
  }
  if (const auto& fewer = plan.fewer_in_flight) {
    document["fewer_in_flight"] = {
        {"in_flight", fewer->in_flight}, {"predicted_step_seconds", fewer->predicted_step_seconds}, {"memory_bytes", fewer->memory_bytes}};
  }
  if (!plan.arithmetic.empty()) document["arithmetic"] = plan.arithmetic;
  if (!plan.explain.empty()) document["explain"] = plan.explain;
  return document;
}

json ToJson(const plan::PlanError& refusal) {
  return {{"refused",
           {{"reason", refusal.reason},
            {"message", refusal.message},
            {"shortfall",
             {{"what", refusal.shortfall.what}, {"needed", refusal.shortfall.needed}, {"available", refusal.shortfall.available}}}}},
          {"search_cpu_seconds", refusal.search_cpu_seconds}};
}

plan::Replica ReadReplica(ObjectReader& in) {
  plan::Replica replica;
  in.Number("compute_seconds", replica.compute_seconds, 0, kMaxSeconds);
  in.Number("codec_seconds", replica.codec_seconds, 0, kMaxSeconds);
  in.Number("update_seconds", replica.update_seconds, 0, kMaxSeconds);
  in.Integer("in_flight", replica.in_flight, 1, kMaxPlanMicroBatches);
  in.Integer("memory_bytes", replica.memory_bytes, 0, kMaxBytes);
  return replica;
}

void ReadReplicasOf(ObjectReader& in, int replicas, plan::Stage& stage) {
  in.Objects("by_replica", kMaxPlanStages, [&](ObjectReader& entry) { stage.by_replica.push_back(ReadReplica(entry)); });
  in.Integers("chain", stage.chain, kMaxPlanStages, 0, replicas - 1);
  in.Integer(in.KeyOrAlias("chunk_bytes", "letter_bytes"), stage.chunk_bytes, 1, kMaxChunkBytes);
  if (!in.ok()) return;
  if (static_cast<int>(stage.by_replica.size()) != replicas) {
    in.Fail("by_replica", absl::StrFormat("has %d entries for %d replicas", stage.by_replica.size(), replicas));
  }
  const std::set<int> members(stage.chain.begin(), stage.chain.end());
  if (stage.chain.size() != members.size() || static_cast<int>(members.size()) != replicas) {
    in.Fail("chain", absl::StrFormat("is no order of the %d replicas", replicas));
  }
}

plan::Stage ReadStage(ObjectReader& in, int index, int replicas) {
  plan::Stage stage;
  in.Integer("index", stage.index, 0, kMaxPlanStages);
  if (in.ok() && stage.index != index) in.Fail("index", absl::StrCat(stage.index, " where stage ", index, " is expected"));
  in.Texts("devices", stage.devices, kMaxPlanStages);
  in.Texts("ops", stage.ops, kMaxPlanOps);
  in.Number("compute_seconds", stage.compute_seconds, 0, kMaxSeconds);
  in.Number("forward_seconds", stage.forward_seconds, 0, kMaxSeconds);
  in.Number("backward_seconds", stage.backward_seconds, 0, kMaxSeconds);
  in.Number("codec_seconds", stage.codec_seconds, 0, kMaxSeconds);
  in.Number("update_seconds", stage.update_seconds, 0, kMaxSeconds);
  in.Integer("in_flight", stage.in_flight, 1, kMaxPlanMicroBatches);
  in.Integer("memory_bytes", stage.memory_bytes, 0, kMaxBytes);
  in.Integer("device_memory_bytes", stage.device_memory_bytes, 0, kMaxBytes, ObjectReader::kOptional);
  in.Number("busy_ratio", stage.busy_ratio, 0, 1e6);
  in.Integer("sync_bytes", stage.sync_bytes, 0, kMaxBytes, ObjectReader::kOptional);
  if (in.ok() && stage.devices.empty()) in.Fail("devices", "is empty");
  if (in.ok() && static_cast<int>(stage.devices.size()) != replicas) {
    in.Fail("devices", absl::StrFormat("lists %d devices, the plan has %d replicas", stage.devices.size(), replicas));
  }
  if (in.ok() && stage.ops.empty()) in.Fail("ops", "is empty");
  if (in.ok() && replicas > 1) ReadReplicasOf(in, replicas, stage);
  return stage;
}

plan::Link ReadLink(ObjectReader& in, const std::vector<plan::Stage>& stages) {
  plan::Link link;
  std::string direction;
  in.Text("src", link.src);
  in.Text("dst", link.dst);
  const int last = static_cast<int>(stages.size()) - 1;
  in.Integer("src_stage", link.src_stage, 0, last);
  in.Integer("dst_stage", link.dst_stage, 0, last);
  in.Text("direction", direction);
  in.Integer("dense_bytes", link.dense_bytes, 0, kMaxBytes);
  in.Integer("bytes", link.bytes, 0, kMaxBytes);
  in.Integer("tied_bytes", link.tied_bytes, 0, kMaxBytes, ObjectReader::kOptional);
  in.Text("codec", link.codec);
  in.Text("dtype", link.dtype, kMaxNameBytes, ObjectReader::kOptional);
  in.Number("ratio", link.ratio, 0, 1e12);
  in.Number("seconds", link.seconds, 0, kMaxSeconds);
  in.Number("loss_cost", link.loss_cost, 0, 1e12);
  in.Text("reason", link.reason, kMaxReasonBytes, ObjectReader::kOptional);
  in.Texts("values", link.values, kMaxPlanOps);
  in.Texts("value_kinds", link.value_kinds, kMaxPlanOps, ObjectReader::kOptional);
  if (!in.ok()) return link;
  if (!link.value_kinds.empty() && link.value_kinds.size() != link.values.size()) in.Fail("value_kinds", "is not one for each value");
  for (const std::string& kind : link.value_kinds) {
    if (const auto known = opdag::ParseActivationKind(kind); !known.ok()) in.Fail("value_kinds", std::string(known.status().message()));
  }
  if (direction != "forward" && direction != "backward") in.Fail("direction", "must be forward or backward");
  link.backward = direction == "backward";
  if (link.src_stage == link.dst_stage) in.Fail("dst_stage", "is the source itself");
  const std::vector<std::string>&from = stages[link.src_stage].devices, &to = stages[link.dst_stage].devices;
  const auto src = std::find(from.begin(), from.end(), link.src), dst = std::find(to.begin(), to.end(), link.dst);
  if (src == from.end()) in.Fail("src", absl::StrCat("'", link.src, "' is not the device of its stage"));
  if (dst == to.end()) in.Fail("dst", absl::StrCat("'", link.dst, "' is not the device of its stage"));
  if (in.ok() && src - from.begin() != dst - to.begin())
    in.Fail("dst", absl::StrCat("'", link.dst, "' is of another replica than its source"));
  if (const auto spec = compression::ParseCodecSpec(link.codec); !spec.ok()) in.Fail("codec", std::string(spec.status().message()));
  return link;
}

plan::TiedParameter ReadTied(ObjectReader& in, int stages) {
  plan::TiedParameter tied;
  in.Text("parameter", tied.parameter);
  in.Integer("bytes", tied.bytes, 0, kMaxBytes);
  in.Integers("stages", tied.stages, kMaxPlanStages, 0, stages - 1);
  in.Number("seconds", tied.seconds, 0, kMaxSeconds, ObjectReader::kOptional);
  in.Integer("wire_bytes", tied.wire_bytes, 0, kMaxBytes, ObjectReader::kOptional);
  in.Text("codec", tied.codec, kMaxReasonBytes, ObjectReader::kOptional);
  in.Number("loss_cost", tied.loss_cost, 0, 1e12, ObjectReader::kOptional);
  in.Text("reason", tied.reason, kMaxReasonBytes, ObjectReader::kOptional);
  if (!in.ok()) return tied;
  const auto spec = compression::ParseCodecSpec(tied.codec);
  if (!spec.ok()) in.Fail("codec", std::string(spec.status().message()));
  if (spec.ok() && compression::IsSparse(spec->kind)) in.Fail("codec", "is none that gradients of tied parameters travel as");
  return tied;
}

void CheckOps(ObjectReader& in, const plan::Plan& plan) {
  std::set<std::string> seen;
  for (const plan::Stage& stage : plan.stages) {
    for (const std::string& op : stage.ops) {
      if (!seen.insert(op).second) return in.Fail("stages", absl::StrCat("op '", op, "' is placed twice"));
      if (seen.size() > static_cast<size_t>(kMaxPlanOps)) return in.Fail("stages", "too many ops");
    }
    for (int r = 0; r < static_cast<int>(stage.by_replica.size()); ++r) {
      if (stage.by_replica[r].in_flight <= plan.MicroBatchesOf(r)) continue;
      return in.Fail("stages", absl::StrFormat("replica %d of stage %d has %d micro-batches in flight of %d", r, stage.index,
                                               stage.by_replica[r].in_flight, plan.MicroBatchesOf(r)));
    }
    if (stage.in_flight > plan.micro_batches) {
      return in.Fail("stages",
                     absl::StrFormat("stage %d has %d micro-batches in flight of %d", stage.index, stage.in_flight, plan.micro_batches));
    }
  }
}

void ReadReplicas(ObjectReader& in, plan::Plan& plan) {
  constexpr const char* kShares = "micro_batches_by_replica";
  in.Integer("replicas", plan.replicas, 1, kMaxPlanStages, ObjectReader::kOptional);
  in.Number("sync_seconds", plan.sync_seconds, 0, kMaxSeconds, ObjectReader::kOptional);
  in.Integer("sync_bytes", plan.sync_bytes, 0, kMaxBytes, ObjectReader::kOptional);
  if (!in.ok() || (plan.replicas == 1 && !in.Has(kShares))) return;
  in.Integers(kShares, plan.micro_batches_by_replica, kMaxPlanStages, 1, kMaxPlanMicroBatches);
  const std::vector<int>& shares = plan.micro_batches_by_replica;
  if (!in.ok()) return;
  if (static_cast<int>(shares.size()) != plan.replicas)
    return in.Fail(kShares, absl::StrFormat("has %d entries for %d replicas", shares.size(), plan.replicas));
  if (std::accumulate(shares.begin(), shares.end(), int64_t{0}) != plan.micro_batches)
    in.Fail(kShares, absl::StrFormat("do not add up to the %d micro-batches", plan.micro_batches));
}

void ReadFigures(ObjectReader& in, plan::Plan& plan) {
  in.Text("unit", plan.unit, kMaxNameBytes, ObjectReader::kOptional);
  in.Number("tokens_per_second", plan.tokens_per_second, 0, 1e300, ObjectReader::kOptional);
  in.Number("samples_per_second", plan.samples_per_second, 0, 1e300, ObjectReader::kOptional);
  in.Integer("steps", plan.steps, 0, kMaxSteps, ObjectReader::kOptional);
  in.Integer("parameters", plan.parameters, 0, kMaxBytes, ObjectReader::kOptional);
  in.Integer("tokens_per_step", plan.tokens_per_step, 0, kMaxBytes, ObjectReader::kOptional);
  in.Integer("site_bytes", plan.site_bytes, 0, kMaxBytes, ObjectReader::kOptional);
  in.Number("loss_cost", plan.loss_cost, 0, 1e12, ObjectReader::kOptional);
  in.Text("loss_cost_source", plan.loss_cost_source, kMaxReasonBytes, ObjectReader::kOptional);
  in.Text("bottleneck", plan.bottleneck, kMaxMessageBytes, ObjectReader::kOptional);
  const auto read_warning = [&](ObjectReader& entry) {
    plan::Warning& warning = plan.warnings.emplace_back();
    entry.Text("reason", warning.reason);
    entry.Text("message", warning.message, kMaxMessageBytes);
  };
  in.Objects("warnings", kMaxWarnings, read_warning, ObjectReader::kOptional);
}

plan::Plan ReadPlan(ObjectReader& in) {
  plan::Plan plan;
  in.Text("strategy", plan.strategy);
  in.Number("predicted_step_seconds", plan.predicted_step_seconds, 0, kMaxSeconds);
  in.Number("lower_bound_seconds", plan.lower_bound_seconds, 0, kMaxSeconds);
  in.Number("gap", plan.gap, -1, kMaxSeconds);
  const auto read_bound = [&](ObjectReader& entry) {
    plan::LowerBound& bound = plan.lower_bounds.emplace_back();
    entry.Text("name", bound.name);
    entry.Number("seconds", bound.seconds, 0, kMaxSeconds);
    entry.Bool("holds", bound.holds);
    entry.Text("why", bound.why, kMaxReasonBytes);
  };
  in.Objects("lower_bounds", kMaxBounds, read_bound, ObjectReader::kOptional);
  in.Integer("micro_batches", plan.micro_batches, 1, kMaxPlanMicroBatches);
  in.Integer("micro_batch_size", plan.micro_batch_size, 1, int64_t{1} << 40);
  const auto read_size = [&](ObjectReader& entry) {
    plan::MicroBatchSize& other = plan.micro_batch_sizes.emplace_back();
    entry.Integer("size", other.size, 1, int64_t{1} << 40);
    entry.Number("predicted_step_seconds", other.predicted_step_seconds, 0, kMaxSeconds);
    entry.Text("refused", other.refused, kMaxMessageBytes, ObjectReader::kOptional);
  };
  in.Objects("micro_batch_sizes", kMaxMicroBatchSizes, read_size, ObjectReader::kOptional);
  in.Integer("in_flight", plan.in_flight, 1, kMaxPlanMicroBatches);
  const auto read_fewer = [&](ObjectReader& entry) {
    plan::FewerInFlight& fewer = plan.fewer_in_flight.emplace();
    entry.Integer("in_flight", fewer.in_flight, 1, kMaxPlanMicroBatches);
    entry.Number("predicted_step_seconds", fewer.predicted_step_seconds, 0, kMaxSeconds);
    entry.Integer("memory_bytes", fewer.memory_bytes, 0, kMaxBytes);
  };
  in.Object("fewer_in_flight", read_fewer, ObjectReader::kOptional);
  in.Text("schedule", plan.schedule);
  in.Text("recompute", plan.recompute);
  in.Text("graph_hash", plan.graph_hash);
  if (in.ok() && !schedule::Find(plan.schedule).has_value()) in.Fail("schedule", absl::StrCat("must be ", schedule::NamesText()));
  if (in.ok() && plan.recompute != "none" && plan.recompute != "full") in.Fail("recompute", "must be none or full");
  ReadReplicas(in, plan);
  in.Objects("stages", kMaxPlanStages,
             [&](ObjectReader& entry) { plan.stages.push_back(ReadStage(entry, static_cast<int>(plan.stages.size()), plan.replicas)); });
  if (in.ok() && plan.stages.empty()) in.Fail("stages", "is empty");
  if (in.ok()) CheckOps(in, plan);
  in.Objects("links", kMaxLinks, [&](ObjectReader& entry) { plan.links.push_back(ReadLink(entry, plan.stages)); });
  in.Objects("tied", kMaxPlanOps, [&](ObjectReader& entry) { plan.tied.push_back(ReadTied(entry, static_cast<int>(plan.stages.size()))); });
  in.Number("fitted_share", plan.fitted_share, 0, 1 + 1e-9, ObjectReader::kOptional);
  in.Number("specified_share", plan.specified_share, 0, 1 + 1e-9, ObjectReader::kOptional);
  in.Texts("specifications", plan.specifications, kMaxPlanStages, ObjectReader::kOptional);
  in.Texts("arithmetic", plan.arithmetic, kMaxPlanStages, ObjectReader::kOptional);
  if (in.ok() && !plan.arithmetic.empty() && plan.arithmetic.size() != plan.specifications.size()) {
    in.Fail("arithmetic", absl::StrFormat("has %d entries for %d specifications", plan.arithmetic.size(), plan.specifications.size()));
  }
  in.Number("fitted_relative_error", plan.fitted_relative_error, 0, 1e9, ObjectReader::kOptional);
  in.Texts("left_out", plan.left_out, kMaxSentences, ObjectReader::kOptional);
  in.Number("search_cpu_seconds", plan.search_cpu_seconds, 0, kMaxSeconds, ObjectReader::kOptional);
  in.Texts("explain", plan.explain, kMaxSentences, ObjectReader::kOptional);
  ReadFigures(in, plan);
  return plan;
}

plan::PlanError ReadRefusal(ObjectReader& in) {
  plan::PlanError refusal;
  in.Object("refused", [&](ObjectReader& refused) {
    refused.Text("reason", refusal.reason);
    refused.Text("message", refusal.message, kMaxMessageBytes);
    refused.Object("shortfall", [&](ObjectReader& shortfall) {
      shortfall.Text("what", refusal.shortfall.what);
      shortfall.Number("needed", refusal.shortfall.needed, -1e300, 1e300);
      shortfall.Number("available", refusal.shortfall.available, -1e300, 1e300);
    });
  });
  in.Number("search_cpu_seconds", refusal.search_cpu_seconds, 0, kMaxSeconds, ObjectReader::kOptional);
  return refusal;
}

}  // namespace

std::string PrintPlan(const plan::PlanResult& answer) {
  return PrintJson(std::visit([](const auto& document) { return ToJson(document); }, answer));
}

absl::StatusOr<plan::PlanResult> ParsePlan(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json document, ParseJson(text, "plan"));
  absl::Status status;
  ObjectReader in(document, "plan", status);
  plan::PlanResult answer;
  if (status.ok()) {
    if (in.Has("refused")) {
      answer = ReadRefusal(in);
    } else {
      answer = ReadPlan(in);
    }
  }
  if (!status.ok()) return status;
  return answer;
}

}  // namespace fusionllm::wire
