// What a run is started with: whom it waits for and how long, what the job asks for, what is known from before.
//
// Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/broker/events.h"
#include "lib/broker/min_model_memory.h"
#include "lib/compression/guard_mode.h"

namespace fusionllm::broker {

struct RunOptions {
  // Executors to wait for, spares included; empty: until JoinTimeout. One that is lost before the first plan is waited for again, for it
  // may be being started again.
  std::set<std::string> expected;
  // Executors, spares aside, to wait for besides; > 0: who may join is unknown, so no absence ends the run while it gathers.
  int min_executors = 0;
  std::set<std::string> data_devices;  // have the training data: no others take stage 0; empty: all have it
  double data_timeout_s = 0;           // for one of them to come back when all have been lost under the run; 0: they are not started again
  // How long to wait for an expected executor that is lost before the first step; then the others go on without it. 20 s are enough where
  // the same machine restarts its processes.
  double executor_timeout_s = 20;
  // Somebody (an operator) restarts lost executors. Then one that never joined is waited for without a limit. A plan that is refused for
  // want of lost ones, and a link that cannot be probed, are waited for as long as above; the run then ends as Unavailable, to be tried
  // again, not as infeasible.
  bool waits_for_executors = false;
  // Never take a stage, not even in need: devices that the job excludes, and those with less memory than it wants of any.
  std::set<std::string> excluded;
  int64_t min_executor_memory_bytes = 0;
  // What the job asks for, spec.strategy.stages and spec.executors.min: where a loss leaves less the new plan says so. 0: any number.
  int64_t stages_asked = 0, executors_asked = 0;
  MinModelMemory min_model_memory;  // of the model: where executors cannot have it they are not measured
  int64_t total_steps = 0;
  bool checkpoints = false;      // the job keeps checkpoints
  int64_t start_step = 0;        // steps already done by the checkpoint to resume from
  std::string start_checkpoint;  // its folder; empty: from the start
  int64_t micro_batch_size = 0;  // that it was trained with; 0: not known, or none
  std::string codec_limit;       // found by the run that made the checkpoint: compression::ToString; empty: none
  CodecLimits codec_limits;
  int max_recoveries = 100;
  compression::GuardMode guard = compression::GuardMode::kAuto;
  bool codecs_asked_for = false;  // the job names codec and ratio, and leaves no choice to the planner
  // Measured before: executors and links that these cover are not measured again.
  std::map<std::string, std::string> known_profiles;
  std::vector<Link> known_links;
  // Directed pairs of devices that are not joined by the link of their sites but by a link of this name, theirs alone or shared with some.
  LinkNames link_names;
  // What must survive a restart of the broker; see journal.h.
  uint32_t last_epoch = 0;
  std::set<std::string> lost_executors;  // executors whose processes are known to have ended: an adopted epoch does not wait for them
};

}  // namespace fusionllm::broker
