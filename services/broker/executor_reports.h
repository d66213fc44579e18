// What executors report, as events of the run. They are other people's machines: what is malformed, not finite or out of range is an error
// or is dropped here, with a warning, and reaches neither the state machine nor the journal. Pure but for the log; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/broker/events.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

broker::Executor ExecutorOf(const v1::Hello& hello);
// Where `asker` is to dial the executor `name`; no address when it is not in the run.
v1::PeerAddress PeerOf(const std::map<std::string, broker::Executor>& executors, const std::string& name, const std::string& asker);

// A profile that is none, or that of another device, is an error of the executor.
broker::Calibrated CalibratedOf(const std::string& name, const v1::CalibrationReport& report);
// Figures that no link can have are an error of the probe.
broker::LinkProbed LinkProbedOf(const std::string& name, const v1::LinkReport& report);
broker::StageReady StageReadyOf(const std::string& name, const v1::StageReady& ready);
// nullopt: dropped. `total_steps`: of the run.
std::optional<broker::StepDone> StepDoneOf(const std::string& name, const v1::StepReport& step, int64_t total_steps);
broker::ShardWritten ShardWrittenOf(const std::string& name, const v1::ShardReport& shard);
broker::StageEnded StageEndedOf(const std::string& name, const v1::StageEnded& ended);

// Whether all times and sums are such; warns if not.
bool IsSane(const std::string& name, const v1::StageTimes& times);
// Takes out links to devices that are not in the plan: a peer's name becomes a key of journal and metrics.
void FilterLinksTo(const std::vector<std::string>& devices, v1::StageTimes& times);
// What a stage that has ended sent, and what each of its peers sent to it as far as it has come, by the device that sent it: links between
// the devices of the plan only.
std::vector<std::pair<std::string, v1::LinkBytes>> LastTrafficOf(const std::vector<std::string>& devices, const std::string& name,
                                                                 const v1::StageEnded& ended);
broker::StageMeasured StageMeasuredOf(const std::string& name, const v1::StageTimes& times);

}  // namespace fusionllm::services
