#include "lib/plan/testing/plans.h"

#include <string>

namespace fusionllm::plan::testing {

Plan TwoStages() {
  Plan plan{.strategy = "op-fence",
            .predicted_step_seconds = 0.1 + 0.2,
            .lower_bound_seconds = 0.25,
            .gap = 0.2,
            .micro_batches = 8,
            .micro_batch_size = 4,
            .in_flight = 3,
            .graph_hash = "00ff00ff00ff00ff"};
  plan.stages = {
      {.index = 0, .devices = {"paris-0"}, .ops = {"tokens", "wte"}, .compute_seconds = 1.0 / 3, .in_flight = 3, .memory_bytes = 1 << 20},
      {.index = 1, .devices = {"tokyo-0"}, .ops = {"head", "loss"}, .compute_seconds = 0.02, .in_flight = 1, .memory_bytes = 2 << 20}};
  plan.links = {{.src = "paris-0",
                 .dst = "tokyo-0",
                 .src_stage = 0,
                 .dst_stage = 1,
                 .dense_bytes = 4000,
                 .bytes = 1000,
                 .tied_bytes = 24,
                 .codec = "topk@20:int8",
                 .ratio = 4,
                 .values = {"wte"},
                 .value_kinds = {"residual"}},
                {.src = "tokyo-0",
                 .dst = "paris-0",
                 .src_stage = 1,
                 .dst_stage = 0,
                 .backward = true,
                 .dense_bytes = 4000,
                 .bytes = 1000,
                 .codec = "topk@20:int8",
                 .ratio = 4}};
  plan.tied = {{.parameter = "transformer.wte.weight",
                .stages = {0, 1},
                .bytes = 4096,
                .seconds = 0.03,
                .wire_bytes = 1112,
                .codec = "int8",
                .loss_cost = 0.002,
                .reason = "it pays"}};
  plan.stages[0].device_memory_bytes = 4 << 20;
  plan.links[1].dtype = "bf16";
  plan.unit = "tokens";
  plan.tokens_per_second = 5210.5;
  plan.samples_per_second = 81;
  plan.parameters = 124'439'808;
  plan.tokens_per_step = 16'384;
  plan.steps = 600;
  plan.site_bytes = 2000;
  plan.loss_cost = 0.071;
  plan.loss_cost_source = "a probe";
  plan.bottleneck = "Nothing.";
  plan.warnings = {{.reason = "NearlyIdle", .message = "tokyo-0 is."}};
  plan.left_out = {"lab-3"};
  plan.fewer_in_flight = {.in_flight = 2, .predicted_step_seconds = 0.5, .memory_bytes = 1 << 20};
  plan.micro_batch_sizes = {{.size = 4, .predicted_step_seconds = 0.3}, {.size = 8, .refused = "too large"}};
  plan.specifications = {"nvidia-l4", "nvidia-t4"};
  plan.arithmetic = {"bf16", "fp32"};
  plan.lower_bounds = {{.name = "work", .seconds = 0.25, .holds = true, .why = "shared out"}, {.name = "cut-bytes", .why = "one may do"}};
  return plan;
}

Plan TwoPipelines() {
  Plan plan = TwoStages();
  plan.replicas = 2;
  plan.micro_batches_by_replica = {5, 3};
  plan.sync_seconds = 0.05;
  plan.sync_bytes = 8192;
  plan.stages[0].devices = {"paris-0", "paris-1"};
  plan.stages[0].sync_bytes = 1024;
  plan.stages[1].devices = {"tokyo-0", "tokyo-1"};
  plan.stages[1].sync_bytes = 3072;
  for (Stage& stage : plan.stages) {
    stage.chain = {0, 1};
    stage.chunk_bytes = 65536;
    stage.by_replica = {{.compute_seconds = stage.compute_seconds, .in_flight = stage.in_flight, .memory_bytes = stage.memory_bytes},
                        {.compute_seconds = 0.01, .codec_seconds = 0.002, .update_seconds = 0.003, .in_flight = 1, .memory_bytes = 4096}};
  }
  for (Link link : TwoStages().links) {
    link.codec = "int8";
    for (std::string* name : {&link.src, &link.dst}) *name = name->substr(0, 6) + "1";
    plan.links.push_back(link);
  }
  return plan;
}

}  // namespace fusionllm::plan::testing
