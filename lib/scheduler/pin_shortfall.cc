#include "lib/scheduler/pin_shortfall.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::scheduler {
namespace {

// Positions [first, last] that one stage must hold, on a device of which that was asked.
struct PinnedRun {
  int device = 0, first = 0, last = 0;
};

std::vector<PinnedRun> PinnedRuns(const Problem& problem) {
  std::vector<PinnedRun> runs;
  for (int p = 0; p < problem.positions(); ++p) {
    const int device = problem.PinnedDevice(p);
    if (device < 0) continue;
    // Placeholders are in the first stage.
    if (runs.empty() || runs.back().device != device) runs.push_back({device, p < problem.first_cut() ? 0 : p, p});
    runs.back().last = p;
  }
  return runs;
}

std::string NamesOf(const Problem& problem, const std::vector<PinnedRun>& runs) {
  return absl::StrJoin(runs, ", ",
                       [&](std::string* out, const PinnedRun& run) { out->append(problem.request().devices[run.device].name); });
}

const char* StageLimit(const PlanRequest& request) {
  return request.stages > 0 ? "spec.strategy.stages" : "spec.executors (max, replicas, less spares)";
}

// The number of stages that there may be, or must.
std::optional<PlanError> StagesShortfall(const Problem& problem, const std::vector<PinnedRun>& runs) {
  const PlanRequest& request = problem.request();
  const int count = static_cast<int>(runs.size()), usable = static_cast<int>(problem.usable().size());
  const std::string constraints = DeviceConstraints(request);
  if (count > problem.max_stages()) {
    return PlanError{plan_errors::kPinConflict,
                     absl::StrFormat("%s need %s, on %s; %s allows %d", constraints, base::Pluralize(count, "stage"),
                                     NamesOf(problem, runs), StageLimit(request), problem.max_stages()),
                     {}};
  }
  int free_ops = problem.positions() - problem.first_cut() + 1;
  for (const PinnedRun& run : runs) free_ops -= run.last - std::max(run.first, problem.first_cut() - 1) + 1;
  const int most = count + std::min(free_ops, usable - count);
  if (most >= problem.min_stages()) return std::nullopt;
  return PlanError{plan_errors::kPinConflict,
                   absl::StrFormat("%s leave ops for at most %d %s; %s asks for %d", constraints, most, most == 1 ? "stage" : "stages",
                                   request.stages > 0        ? "spec.strategy.stages"
                                   : request.use_all_devices ? "the planner, which uses all executors,"
                                                             : "spec.executors.min",
                                   problem.min_stages()),
                   {}};
}

// Why a device must hold a run.
std::string CauseOf(const Problem& problem, const PinnedRun& run) {
  const PlanRequest& request = problem.request();
  const std::string& last = request.ops[problem.op_at(run.last)].name;
  if (run.first > 0 || request.devices[run.device].name != request.first_device) {
    return absl::StrFormat("ops from '%s' to '%s' are pinned to it (spec.strategy.pins)", request.ops[problem.op_at(run.first)].name, last);
  }
  const char* const data = "it runs the first stage, for it has the training data (spec.data.clusters)";
  // The data alone ask for the first op that is no placeholder.
  if (run.last < problem.first_cut()) return data;
  return absl::StrFormat("%s, up to op '%s', which is pinned to it (spec.strategy.pins)", data, last);
}

// The memory of one device for what it must hold.
std::optional<PlanError> RunShortfall(const Problem& problem, const PinnedRun& run) {
  const PlanRequest& request = problem.request();
  // Under recomputation what a stage received is kept, and one that begins earlier makes it itself, and may keep less.
  const int64_t kept = request.recompute && run.first > 0 ? problem.StashBound(run.first, run.last + 1) : 0;
  const int64_t need = problem.StandaloneBytes(run.first, run.last + 1) - kept, has = problem.UsableMemory(run.device);
  if (need <= has) return std::nullopt;
  if (has == 0) {
    return PlanError{plan_errors::kPinConflict, absl::StrCat(ProcessShortfall(request, run.device), ": ", CauseOf(problem, run)),
                     ProcessMemory(request, run.device)};
  }
  return PlanError{plan_errors::kPinConflict,
                   absl::StrFormat("what %s must hold needs %s of memory, it has %s: %s", request.devices[run.device].name,
                                   SizeText(static_cast<double>(need)), SizeText(static_cast<double>(has)), CauseOf(problem, run)),
                   {"memory_bytes", static_cast<double>(need), static_cast<double>(has)}};
}

// The memory of all that there may be beside the devices that are asked for.
std::optional<PlanError> MemoryShortfall(const Problem& problem, const std::vector<PinnedRun>& runs) {
  const PlanRequest& request = problem.request();
  std::set<int> pinned;
  for (const PinnedRun& run : runs) pinned.insert(run.device);
  int64_t together = 0;
  std::vector<int64_t> others;
  for (const int device : problem.usable()) {
    if (pinned.contains(device)) {
      together += problem.UsableMemory(device);
    } else {
      others.push_back(problem.UsableMemory(device));
    }
  }
  std::sort(others.rbegin(), others.rend());
  for (int k = 0; k < problem.max_stages() - static_cast<int>(runs.size()); ++k) together += others[k];
  const int64_t whole = problem.StandaloneBytes(0, problem.positions());
  if (whole <= together) return std::nullopt;
  return PlanError{
      plan_errors::kPinConflict,
      absl::StrFormat("with %s there are stages on %s, and %s allows %d in all: these have %s together at most, the job needs %s",
                      DeviceConstraints(request), NamesOf(problem, runs), StageLimit(request), problem.max_stages(),
                      SizeText(static_cast<double>(together)), SizeText(static_cast<double>(whole))),
      {"memory_bytes", static_cast<double>(whole), static_cast<double>(together)}};
}

}  // namespace

std::string ProcessShortfall(const PlanRequest& request, int device) {
  const Device& small = request.devices[device];
  std::string text = absl::StrFormat("an executor takes %s before its first op, and %s has %s",
                                     SizeText(static_cast<double>(request.memory_reserve_bytes)), small.name,
                                     SizeText(static_cast<double>(small.memory_bytes)));
  if (small.memory_bytes > request.memory_reserve_bytes)
    absl::StrAppendFormat(&text, ", of which %.0f%% stay free", 100 * request.memory_headroom);
  return text;
}

Shortfall ProcessMemory(const PlanRequest& request, int device) {
  return {"memory_bytes", static_cast<double>(request.memory_reserve_bytes), static_cast<double>(request.devices[device].memory_bytes)};
}

std::string DeviceConstraints(const PlanRequest& request) {
  const std::string data =
      absl::StrFormat("the place of the training data (spec.data.clusters: %s runs the first stage)", request.first_device);
  if (request.first_device.empty()) return "the pins (spec.strategy.pins)";
  return request.pins.empty() ? data : absl::StrFormat("the pins (spec.strategy.pins) and %s", data);
}

std::optional<PlanError> PinShortfall(const Problem& problem) {
  const std::vector<PinnedRun> runs = PinnedRuns(problem);
  if (std::optional<PlanError> refusal = StagesShortfall(problem, runs)) return refusal;
  for (const PinnedRun& run : runs) {
    if (std::optional<PlanError> refusal = RunShortfall(problem, run)) return refusal;
  }
  return MemoryShortfall(problem, runs);
}

}  // namespace fusionllm::scheduler
