// A plan or a refusal as another process may have sent it.
#include "lib/base/testing/fuzz.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::wire {
namespace {

std::vector<std::string> Seeds() {
  plan::Plan plan{.strategy = "op-fence",
                  .predicted_step_seconds = 0.1 + 0.2,
                  .micro_batches = 8,
                  .micro_batch_size = 4,
                  .in_flight = 3,
                  .graph_hash = "00ff00ff00ff00ff"};
  plan.stages = {{.index = 0, .devices = {"a"}, .ops = {"tokens", "wte"}, .in_flight = 3, .memory_bytes = 1 << 20},
                 {.index = 1, .devices = {"b"}, .ops = {"head", "loss"}, .in_flight = 1}};
  plan.links = {{.src = "a", .dst = "b", .src_stage = 0, .dst_stage = 1, .bytes = 1000, .codec = "topk@20:int8", .values = {"wte"}},
                {.src = "b", .dst = "a", .src_stage = 1, .dst_stage = 0, .backward = true, .codec = "topk@20:int8"}};
  plan.tied = {{.parameter = "wte.weight", .stages = {0, 1}, .bytes = 4096}};
  plan.left_out = {"c"};
  plan.explain = {"é \\ \"why\""};
  const plan::PlanError refusal{.reason = "InsufficientMemory", .message = "stage 3", .shortfall = {"memory_bytes", 1.1e10, 8e9}};
  return {PrintPlan(plan), PrintPlan(refusal)};
}

std::vector<std::string> Words() {
  return {"\"stages\":[", "\"refused\":{}", "\"links\":[]", "\"ops\":[]", "2147483648", "1e308", "int4", "fp16", "topk@1:fp16", "[0,1]"};
}

bool Accepts(absl::string_view input) {
  const absl::StatusOr<plan::PlanResult> answer = ParsePlan(input);
  if (!answer.ok()) {
    FUZZ_CHECK(!answer.status().message().empty());
    return false;
  }
  if (const auto* plan = std::get_if<plan::Plan>(&*answer)) {
    for (const plan::Link& link : plan->links) {
      FUZZ_CHECK(link.src == plan->stages.at(link.src_stage).devices.at(0) && link.dst == plan->stages.at(link.dst_stage).devices.at(0));
    }
    for (const plan::TiedParameter& tied : plan->tied) {
      for (const int stage : tied.stages) FUZZ_CHECK(stage >= 0 && static_cast<size_t>(stage) < plan->stages.size());
    }
  }
  const absl::StatusOr<plan::PlanResult> again = ParsePlan(PrintPlan(*answer));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(*again == *answer);
  return true;
}

}  // namespace
}  // namespace fusionllm::wire

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {wire::Seeds, wire::Words, wire::Accepts}; }
