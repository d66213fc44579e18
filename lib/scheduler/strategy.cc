#include "lib/scheduler/strategy.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/scheduler/bounds.h"

namespace fusionllm::scheduler {
namespace {

std::string Size(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0 || bytes >= 100) return absl::StrFormat("%.0f %s", bytes, kUnits[unit]);
  return absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

std::string Duration(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g s", seconds);
}

int64_t NeedAlone(const Problem& problem, int begin, int end) {
  return problem.StaticBytes(begin, end) + problem.StashBound(begin, end) + problem.ScratchBound(begin, end);
}

// Devices in descending memory take the longest prefix that fits; what the last one would have to take is what is missing.
Refusal GreedyShortfall(const Problem& problem) {
  std::vector<int> devices = problem.usable();
  std::stable_sort(devices.begin(), devices.end(), [&](int a, int b) { return problem.UsableMemory(a) > problem.UsableMemory(b); });
  int begin = 0;
  const int count = problem.max_stages();
  for (int s = 0; s + 1 < count; ++s) {
    int end = std::max(begin + 1, s == 0 ? problem.first_cut() : 0);
    while (end < problem.positions() - 1 && NeedAlone(problem, begin, end + 1) <= problem.UsableMemory(devices[s])) ++end;
    if (end >= problem.positions()) break;
    begin = end;
  }
  const double needed = static_cast<double>(NeedAlone(problem, begin, problem.positions()));
  const double largest = static_cast<double>(problem.UsableMemory(devices[count - 1]));
  return {"InsufficientMemory",
          absl::StrFormat("stage %d needs %s, largest free device has %s (%s)", count - 1, Size(needed), Size(largest),
                          problem.request().devices[devices[count - 1]].name),
          {"memory_bytes", needed, largest}};
}

// No placement that was found keeps to the limit: what the declared order would send tells by how much.
Refusal EgressShortfall(const Problem& problem, Evaluator& evaluator) {
  const int stages = std::max(problem.min_stages(), std::min(problem.max_stages(), 2));
  Assignment assignment{.devices = {problem.usable().begin(), problem.usable().begin() + stages}};
  for (int s = 0; s < stages; ++s) assignment.begins.push_back(s == 0 ? 0 : problem.first_cut() + s - 1);
  const Evaluation evaluation = evaluator.Evaluate(assignment, Effort::kQuick);
  if (evaluation.verdict == Evaluation::Verdict::kTooMuchEgress) return RefusalFor(problem, assignment, evaluation);
  return {"TooMuchEgress",
          absl::StrFormat("no placement was found that fits memory and sends no more than %s a step from any site to others",
                          Size(static_cast<double>(*problem.request().max_egress_bytes))),
          {}};
}

}  // namespace

Refusal RefusalFor(const Problem& problem, const Assignment& assignment, const Evaluation& evaluation) {
  const PlanRequest& request = problem.request();
  const std::string device = request.devices[assignment.devices[evaluation.stage]].name;
  switch (evaluation.verdict) {
    case Evaluation::Verdict::kTooMuchMemory: {
      const double needed = static_cast<double>(evaluation.needed_bytes);
      const double available = static_cast<double>(problem.UsableMemory(assignment.devices[evaluation.stage]));
      return {"InsufficientMemory",
              absl::StrFormat("stage %d needs %s, device %s has %s", evaluation.stage, Size(needed), device, Size(available)),
              {"memory_bytes", needed, available}};
    }
    case Evaluation::Verdict::kTooMuchEgress: {
      const double needed = static_cast<double>(evaluation.needed_bytes), allowed = static_cast<double>(*request.max_egress_bytes);
      return {"TooMuchEgress",
              absl::StrFormat("site %s would send %s to other sites in a step, the job allows %s",
                              request.devices[assignment.devices[evaluation.stage]].site, Size(needed), Size(allowed)),
              {"egress_bytes", needed, allowed}};
    }
    case Evaluation::Verdict::kDisconnected: {
      const std::string other = request.devices[assignment.devices[evaluation.other_stage]].name;
      return {"DisconnectedDevices",
              absl::StrFormat("stage %d on %s must exchange tensors with stage %d on %s, and no link joins them both ways",
                              evaluation.stage, device, evaluation.other_stage, other),
              {}};
    }
    default: {
      const int begin = assignment.begins[evaluation.stage];
      return {"PinConflict",
              absl::StrFormat("this planner puts op '%s' and what follows it on %s against a pin; op-fence honours pins",
                              request.ops[problem.op_at(begin)].name, device),
              {}};
    }
  }
}

Refusal ExplainInfeasible(const Problem& problem, Evaluator& evaluator) {
  const PlanRequest& request = problem.request();
  int64_t largest = 0, together = 0;
  std::vector<int64_t> memories;
  for (int device : problem.usable()) memories.push_back(problem.UsableMemory(device));
  std::sort(memories.rbegin(), memories.rend());
  largest = memories[0];
  const Device& roomiest = request.devices[*std::max_element(problem.usable().begin(), problem.usable().end(), [&](int a, int b) {
    return request.devices[a].memory_bytes < request.devices[b].memory_bytes;
  })];
  if (largest == 0) {
    return {"InsufficientMemory",
            absl::StrFormat("an executor takes %s before its first op, and %s, which has the most, has %s",
                            Size(static_cast<double>(request.memory_reserve_bytes)), roomiest.name,
                            Size(static_cast<double>(roomiest.memory_bytes))),
            {"memory_bytes", static_cast<double>(request.memory_reserve_bytes), static_cast<double>(roomiest.memory_bytes)}};
  }
  for (int k = 0; k < problem.max_stages(); ++k) together += memories[k];
  for (int p = 0; p < problem.positions(); ++p) {
    const int64_t need = NeedAlone(problem, p, p + 1);
    if (need > largest) {
      return {"OpTooLarge",
              absl::StrFormat("op '%s' alone needs %s, the largest free device, %s, has %s for it", request.ops[problem.op_at(p)].name,
                              Size(static_cast<double>(need)), roomiest.name, Size(static_cast<double>(largest))),
              {"memory_bytes", static_cast<double>(need), static_cast<double>(largest)}};
    }
  }
  const int64_t whole = NeedAlone(problem, 0, problem.positions());
  if (whole > together) {
    return {"InsufficientMemory",
            absl::StrFormat("the job needs %s with one micro-batch in flight, the %d executors it may use have %s together",
                            Size(static_cast<double>(whole)), problem.max_stages(), Size(static_cast<double>(together))),
            {"memory_bytes", static_cast<double>(whole), static_cast<double>(together)}};
  }
  for (size_t a = 0; a < problem.usable().size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const int x = problem.usable()[b], y = problem.usable()[a];
      if (problem.Connected(x, y) || problem.max_stages() == 1) continue;
      if (whole <= largest && problem.min_stages() == 1) continue;
      return {"DisconnectedDevices",
              absl::StrFormat("no placement works with the links there are: %s and %s, among others, are not joined both ways",
                              problem.request().devices[x].name, problem.request().devices[y].name),
              {}};
    }
  }
  if (request.max_egress_bytes.has_value()) return EgressShortfall(problem, evaluator);
  if (problem.HasPins()) {
    return {"PinConflict", "no placement honours the pins within the memory of the devices they name", {}};
  }
  return GreedyShortfall(problem);
}

std::vector<std::string> Explain(const Problem& problem, const Plan& plan) {
  const PlanRequest& request = problem.request();
  std::vector<std::string> lines;
  double slowest_s = 0;
  for (const PlanStage& stage : plan.stages) slowest_s = std::max(slowest_s, stage.forward_s + stage.backward_s + stage.codec_s);
  for (const PlanStage& stage : plan.stages) {
    const double stage_s = stage.forward_s + stage.backward_s + stage.codec_s;
    const Device& device = request.devices[stage.devices[0]];
    lines.push_back(absl::StrFormat(
        "stage %d: %s%s runs %d ops, %s per micro-batch%s, %d in flight, %s of %s", stage.index, device.name,
        device.site.empty() ? "" : absl::StrCat(" (", device.site, ")"), stage.ops.size(), Duration(stage_s),
        stage_s >= slowest_s * (1 - 1e-9) ? ", the slowest stage" : absl::StrFormat(" (%.0f%% of the slowest)", 100 * stage_s / slowest_s),
        stage.in_flight, Size(static_cast<double>(stage.memory_bytes)), Size(static_cast<double>(problem.UsableMemory(stage.devices[0])))));
  }
  for (const PlanLink& link : plan.links) {
    const double worst_s = std::max(link.forward_s, link.backward_s);
    std::string why = worst_s <= slowest_s ? "hidden behind the slowest stage" : "not hidden behind the slowest stage";
    if (link.ratio > 1) {
      why = absl::StrFormat("%s after shrinking %.3gx, expected to raise the loss by %.2g", why, link.ratio, link.loss_cost);
    }
    if (!link.codec_reason.empty()) absl::StrAppend(&why, ". Codec: ", link.codec_reason);
    lines.push_back(absl::StrFormat("link %d -> %d: %s -> %s carries %s as %s (%s forward, %s back per micro-batch): %s", link.src_stage,
                                    link.dst_stage, link.src_device, link.dst_device, absl::StrJoin(link.value_names, ", "), link.codec,
                                    Size(static_cast<double>(link.forward_wire_bytes)), Size(static_cast<double>(link.backward_wire_bytes)),
                                    why));
  }
  for (const TiedExchange& tied : plan.tied) {
    lines.push_back(absl::StrFormat("tied parameter %s: used in stages %s, which exchange %s of gradients after each step", tied.parameter,
                                    absl::StrJoin(tied.stages, ", "), Size(static_cast<double>(tied.bytes))));
  }
  std::set<absl::string_view> spares;
  for (const Device& device : request.devices) {
    if (device.spare) spares.insert(device.name);
  }
  for (const std::string& name : plan.left_out) {
    const bool capped = static_cast<int>(plan.stages.size()) >= problem.max_stages();
    lines.push_back(absl::StrFormat("%s has no stage: %s", name,
                                    spares.contains(name) ? "a spare"
                                    : capped              ? absl::StrFormat("the job may use %d executors", problem.max_stages())
                                                          : std::string("a stage there would not make the step faster")));
  }
  return lines;
}

Plan WholePlan(const Problem& problem, Evaluator& evaluator, const Assignment& assignment, absl::string_view strategy, bool proven) {
  const PlanRequest& request = problem.request();
  Plan plan = evaluator.ToPlan(assignment, strategy);
  plan.evaluations = evaluator.evaluations();
  // Among lossy plans the search seeks the time to an equal loss, which proves nothing about the time of a step.
  const bool lossless = std::all_of(plan.links.begin(), plan.links.end(), [](const PlanLink& link) { return link.loss_cost == 0; });
  plan.lower_bound_s = proven && lossless ? plan.predicted_step_s : LowerBoundSeconds(problem);
  plan.gap = plan.lower_bound_s > 0 ? plan.predicted_step_s / plan.lower_bound_s - 1 : 0;
  std::vector<char> used(request.devices.size(), 0);
  for (const PlanStage& stage : plan.stages) used[stage.devices[0]] = 1;
  const std::set<absl::string_view> excluded(request.exclude.begin(), request.exclude.end());
  for (size_t d = 0; d < request.devices.size(); ++d) {
    if (!used[d] && !excluded.contains(request.devices[d].name)) plan.left_out.push_back(request.devices[d].name);
  }
  plan.explain = Explain(problem, plan);
  return plan;
}

absl::StatusOr<PlanOutcome> Strategy::Plan(const PlanRequest& request, StopFunction stop) const {
  FUSIONLLM_ASSIGN_OR_RETURN(auto created, Problem::Create(request, std::move(stop)));
  if (auto* refusal = std::get_if<Refusal>(&created)) return PlanOutcome(std::move(*refusal));
  const Problem& problem = *std::get<std::unique_ptr<Problem>>(created);
  Evaluator evaluator(problem);
  bool proven = false;
  auto found = Search(problem, evaluator, &proven);
  // A search that was cut short may also have nothing, or not its best: nobody waits for it.
  if (problem.Stopped()) return absl::CancelledError("planning was stopped");
  if (auto* refusal = std::get_if<Refusal>(&found)) return PlanOutcome(std::move(*refusal));
  return PlanOutcome(WholePlan(problem, evaluator, std::get<Assignment>(found), name(), proven));
}

std::vector<absl::string_view> StrategyNames() { return {"op-fence", "equal-ops", "equal-compute", "exact", "dt-fm", "random"}; }

absl::StatusOr<std::unique_ptr<Strategy>> CreateStrategy(absl::string_view name) {
  if (name == "op-fence") return MakeOpFence();
  if (name == "equal-ops") return MakeEqualOps();
  if (name == "equal-compute") return MakeEqualCompute();
  if (name == "exact") return MakeExact();
  if (name == "dt-fm") return MakeDtFm();
  if (name == "random") return MakeRandom();
  return absl::NotFoundError(absl::StrFormat("no planner '%s'; there are %s", name, absl::StrJoin(StrategyNames(), ", ")));
}

absl::StatusOr<PlanOutcome> MakePlan(absl::string_view strategy, const PlanRequest& request, StopFunction stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Strategy> planner, CreateStrategy(strategy));
  return planner->Plan(request, std::move(stop));
}

}  // namespace fusionllm::scheduler
