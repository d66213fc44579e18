// What happens to a run and what its state machine orders: the words between RunState and the shell that serves it. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/broker/run_plan.h"
#include "lib/checkpoint/manifest.h"

namespace fusionllm::broker {

struct Executor {
  std::string name;
  uint64_t incarnation = 0;
  std::string site;
  bool spare = false;
  int32_t pid = 0;
  int64_t memory_bytes = 0;
  std::string data_address;
  std::string site_address;   // for peers of its own site; empty: data_address holds for them, too
  bool at_relay = false;      // dials out only: data_address is no address to dial, peers meet it at the broker
  bool holds_shards = false;  // keeps its shards in a folder of its site
};

struct Link {
  std::string src, dst;
  double rtt_s = 0;
  double bytes_per_s = 0;
  bool operator==(const Link&) const = default;
};

// The name of the link between two devices that a topology names, by source and destination.
using LinkNames = std::map<std::pair<std::string, std::string>, std::string>;

struct StepRecord {
  int64_t step = 0;
  float loss = 0;      // mean over the targets that count
  double counted = 1;  // share of the global batch's targets that count
  double gradient_norm = 0;
  double learning_rate = 0;
  double step_seconds = 0;
};

// ---- Events -----------------------------------------------------------------------------------------------------------------------------
// The shell serves from now on. Whom a broker that takes over waits for is timed from here; a new run waits for its first executor as long
// as it takes.
struct Started {};
struct ExecutorJoined {
  Executor executor;
  // What a rejoining executor is running; 0: nothing.
  uint32_t epoch = 0;
};
struct ExecutorLeft {
  std::string name;
  uint64_t incarnation = 0;
  std::string why;
};
struct JoinTimeout {};  // no more executors are waited for
struct Calibrated {
  std::string name;
  std::string profile_document;
  absl::Status status;  // ResourceExhausted: the model needs more memory than the executor may use
};
struct LinkProbed {
  Link link;
  absl::Status status;
};
struct Planned {
  uint64_t id = 0;  // of the question: RequestPlan's
  RunPlan plan;
};
// Of an answer that is no refusal of the planner: it was not reached, or has failed.
inline constexpr char kSchedulerFailed[] = "SchedulerFailed";
struct PlanRefused {
  uint64_t id = 0;
  std::string reason;  // CamelCase; kSchedulerFailed
  std::string message;
};
struct StageReady {
  uint32_t epoch = 0;
  std::string name;
  absl::Status status;
  double load_s = 0;
};
struct StepDone {
  uint32_t epoch = 0;
  std::string name;  // the first stage's executor, of replica 0
  StepRecord record;
};
struct LinkRate {
  double bytes_per_s = 0;  // 0: not measured
  int64_t samples = 0;     // in it so far: where they are as many as before, nothing was measured since
};
// Found by the sender of an edge before a message left that would have lost too much (lib/runtime/edge_codec.h).
struct CodecBackoff {
  std::string peer;       // that the message is for
  std::string value;      // of the forward graph
  bool gradient = false;  // of it
  std::string kind;       // opdag::Name
  std::string from, to;   // codecs; equal: nothing was done
  double relative_error = 0;
  double cosine = 1;
  double limit = 0;            // of the relative error
  double remaining_error = 0;  // with `to`
};
// By value of the forward graph, and whether its gradient is meant: the most that its messages bear.
using CodecLimits = std::map<std::pair<std::string, bool>, std::string>;

// One stage's own account of one step.
struct StageMeasured {
  uint32_t epoch = 0;
  std::string name;
  int64_t step = 0;
  double busy_s = 0;                      // less what an emulated device was late by
  std::map<std::string, LinkRate> rates;  // towards each peer
  std::vector<CodecBackoff> backoffs;     // since the epoch began
};
struct ShardWritten {
  uint32_t epoch = 0;
  std::string name;  // of its sender; empty from the journal, which has believed it
  int64_t step = 0;
  int stage = 0;
  std::vector<checkpoint::FileEntry> files;
  int64_t samples_consumed = 0;  // data cursor after the step; 0 from stages that read no data
  absl::Status status;
  double seconds = 0;
};
// What RequestPlan with an `alternative` is answered with, while the plan in force goes on.
struct AlternativePlanned {
  uint64_t alternative = 0;
  absl::StatusOr<RunPlan> plan;  // a refusal is an error
  std::string refusal_reason;    // then, as PlanRefused has it; empty: it is none of the planner, or its advice to stay
};
struct CheckpointCommitted {
  int64_t step = 0;
  std::string path;
  absl::Status status;
};
// What the epoch restores has files in a site that no executor there can deliver.
struct CheckpointUnusable {
  uint32_t epoch = 0;
  std::string path;
  absl::Status status;
};
// The answer to ReplaceCheckpoint. An error ends the run.
struct CheckpointReplaced {
  int64_t step = 0;
  std::string path;
  absl::Status status;
};
struct StageEnded {
  uint32_t epoch = 0;
  std::string name;
  int64_t last_step = 0;
  absl::Status status;
  std::string lost_peer;
  bool not_finite = false;  // the status is about numbers that are none, not about files or peers
};
struct StopRequested {};
// The shell's timer for what it was asked to StartTimer has run out.
struct TimerFired {
  uint64_t id = 0;
};

using Event = std::variant<Started, ExecutorJoined, ExecutorLeft, JoinTimeout, Calibrated, LinkProbed, Planned, PlanRefused,
                           AlternativePlanned, StageReady, StepDone, StageMeasured, ShardWritten, CheckpointCommitted, CheckpointUnusable,
                           CheckpointReplaced, StageEnded, StopRequested, TimerFired>;

// ---- Actions ----------------------------------------------------------------------------------------------------------------------------
struct StartCalibration {
  std::string name;
};
struct StartLinkProbe {
  std::string src, dst;
};
// The plan in force, for a question whether to leave it.
struct CurrentPlan {
  std::string document;
  std::vector<std::string> devices;  // by rank: those of now, where spares have taken stages over
  int64_t steps_left = 0;
  double step_s = 0;  // as measured lately
  double bias = 1;    // measured over predicted, while it ran well
  double move_s = 0;  // what leaving it costs, whatever the new plan
};
struct RequestPlan {
  uint64_t id = 0;                   // an answer to an earlier question is about executors that were there then
  std::vector<std::string> devices;  // to plan over; the shell adds profiles and links
  // After a loss: fewer devices than the job asked for stages are then no reason to refuse.
  bool after_loss = false;
  // > 0: what a plan would look like now; answered by AlternativePlanned with this number.
  uint64_t alternative = 0;
  std::string data_device;                  // runs the first stage, for it has the training data; empty: any may
  int64_t micro_batch_size = 0;             // of the run so far, which a job that leaves it to the planner keeps; 0: none yet
  std::string codec_limit;                  // compression::ToString of the furthest codec that any link may use; empty: the job's
  std::map<std::string, double> slowness;   // devices that take so many times as long as their profiles say
  std::optional<CurrentPlan> current_plan;  // with `alternative`: a plan is wanted only where it pays to leave this one
  bool figures_only = false;                // what `current_plan` is expected to do, stage by stage as it is
};
struct SendAssign {
  std::string name;
  uint32_t epoch = 0;
  int stage = 0;
  int replica = 0;
  std::string restore_from;  // empty: initialise
  int64_t first_step = 1;
};
struct SendStart {
  std::string name;
  uint32_t epoch = 0;
};
struct SendAbort {
  std::string name;
  uint32_t epoch = 0;
  std::string why;
};
struct SendStop {
  std::string name;
  uint32_t epoch = 0;
};
struct SendCodecLimit {  // while it runs
  std::string name;
  uint32_t epoch = 0;
  std::string codec;
};
struct Reject {  // out of the run, which goes on
  std::string name;
  std::string why;
};
struct CommitCheckpoint {
  int64_t step = 0;
  int64_t samples_consumed = 0;
  std::vector<checkpoint::FileEntry> files;
  std::string codec_limit;  // as RequestPlan's; a run that goes on from the checkpoint keeps both
  CodecLimits codec_limits;
};
struct AbandonCheckpoint {  // remove what was written of it
  int64_t step = 0;
};
struct ReplaceCheckpoint {  // this one cannot be restored: find the newest that may
  std::string path;
};
struct DataFile {
  std::string path;
  int64_t bytes = 0;
};
struct EmitEvent {  // a line of type "event" (docs/reference/events.md)
  std::string reason;
  int64_t step = 0;
  std::string message;
  std::string device;
  int32_t pid = 0;
  std::optional<int> stage, replica;  // the latter where there are several
  std::string peer;                   // of a link that begins at `device`
  // Of what the message is about: seconds of a step for a device, bytes/s for a link.
  std::optional<double> measured, planned;
  std::optional<CodecBackoff> backoff;            // that it is about
  double expected_loss_increase = 0;              // then: what the plan expects of the codec, nats
  bool reduces_compression = false;               // codecs are, now
  std::vector<DataFile> files, validation_files;  // the first ones that are read
};
// Says of an event which part of the plan it is about; a rank below 0: none.
void SetStageAndReplica(const RunPlan& plan, int rank, EmitEvent& event);

struct PublishPlan {};  // the plan in force changed: print it
struct PublishStep {
  uint32_t epoch = 0;
  StepRecord record;
};
struct StartTimer {  // start a timer; a later StartTimer replaces it, id 0 stops it
  uint64_t id = 0;
  double seconds = 0;
  std::string what;
};
struct Finish {  // terminal
  absl::Status status;
  bool interrupted = false;
  std::string refusal_reason;  // set when the planner refused
};

using Action =
    std::variant<StartCalibration, StartLinkProbe, RequestPlan, SendAssign, SendStart, SendAbort, SendStop, SendCodecLimit, Reject,
                 CommitCheckpoint, AbandonCheckpoint, ReplaceCheckpoint, EmitEvent, PublishPlan, PublishStep, StartTimer, Finish>;

}  // namespace fusionllm::broker
