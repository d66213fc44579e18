// Stretches of a pass that a device is asked for in one call, once they have been run one op at a time. Internal to lib/runtime.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "lib/kernels/backend.h"
#include "lib/opdag/graph.h"
#include "lib/runtime/stage_program.h"

namespace fusionllm::runtime {

// Ops begin..end - 1 of a pass. Nothing comes in or leaves but before the first and after the last.
struct CaptureRegion {
  size_t begin = 0, end = 0;
  size_t runs = 0;            // how many of them are no views
  bool is_replayable = true;  // what it asks the device for depends on the slot and on whether gradients are added up, and on nothing else
};

// Of all ops of the pass in their order. `kernels` by op id.
std::vector<CaptureRegion> CaptureRegionsOf(const Pass& pass, kernels::Mode mode, const opdag::Graph& graph,
                                            const std::vector<std::unique_ptr<kernels::Kernel>>& kernels);

// What has been recorded of the segments of one stage. For the stage's thread.
class GraphCaptureCache {
 public:
  struct Key {
    const Pass* pass;
    int slot;
    bool accumulate;
    size_t begin;
    auto operator<=>(const Key&) const = default;
  };
  // Does what `run` does: itself at first, then by a recording of it if the back end makes one. Errors: those of `run`,
  // CapturedGraph::Replay's.
  absl::Status Run(const Key& key, kernels::Backend& backend, absl::FunctionRef<absl::Status()> run);
  // How many runs were by a recording.
  int64_t replays() const { return replays_; }

 private:
  struct State {
    bool has_run = false;
    std::unique_ptr<kernels::CapturedGraph> recording;
  };
  std::map<Key, State> states_;
  bool none_ = false;  // the back end records nothing
  int64_t replays_ = 0;
};

}  // namespace fusionllm::runtime
