#include "lib/runtime/graph_capture.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace fusionllm::runtime {

std::vector<CaptureRegion> CaptureRegionsOf(const Pass& pass, kernels::Mode mode, const opdag::Graph& graph,
                                            const std::vector<std::unique_ptr<kernels::Kernel>>& kernels) {
  std::vector<CaptureRegion> segments;
  bool goes_on = false;  // the last one may have another op
  for (size_t i = 0; i < pass.ops.size(); ++i) {
    const ProgramOp& op = pass.ops[i];
    const auto& kernel = kernels[op.op];
    // Placeholders, which the host fills, have none.
    const bool same = op.view || (kernel != nullptr && !kernel->IsRandom(op.recompute ? kernels::Mode::kRecompute : mode));
    if (goes_on && same && segments.back().is_replayable) {
      segments.back().end = i + 1;
    } else {
      segments.push_back({.begin = i, .end = i + 1, .is_replayable = same});
    }
    segments.back().runs += op.view ? 0 : 1;
    goes_on = op.sends.empty();
  }
  return segments;
}

absl::Status GraphCaptureCache::Run(const Key& key, kernels::Backend& backend, absl::FunctionRef<absl::Status()> run) {
  if (none_) return run();
  State& state = states_[key];
  if (!state.has_run) {  // libraries make themselves ready in their first call
    state.has_run = true;
    return run();
  }
  if (state.recording == nullptr) {
    absl::StatusOr<std::unique_ptr<kernels::CapturedGraph>> recording = backend.CaptureGraph(run);
    none_ = (recording.ok() && *recording == nullptr) || absl::IsUnimplemented(recording.status());
    if (none_) {
      if (!recording.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat("ops are started one by one: ", recording.status().message()));
      states_.clear();
      return run();
    }
    if (!recording.ok()) return recording.status();
    state.recording = *std::move(recording);
  }
  ++replays_;
  return state.recording->Replay();
}

}  // namespace fusionllm::runtime
