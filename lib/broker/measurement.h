// What is measured before a plan is made: each device by itself, then the links between them; and, while stages run, what a planner must
// know of devices that have come late.
//
// One measurement at a time, whatever happens to the others meanwhile: devices on one machine would slow each other down. Events in,
// verdicts out; its orders are StartCalibration, StartLinkProbe and their timers. Not thread-safe.
//
//   state         event                                       next          verdict, action
//   kIdle         MeasureNext, a device is not known          kCalibrating  kCalibrates; StartCalibration
//   kIdle         MeasureNext, a shared link is not known     kProbing      kProbes; StartLinkProbe
//   kIdle         MeasureNext, all is known                   kIdle         kDone
//   kCalibrating  MeasureNext                                 kCalibrating  kCalibrates
//   kProbing      MeasureNext, before the next plan           kProbing      kWaits
//   kProbing      MeasureNext, the first after a run          kIdle, and as from there: what is measured beside a run is measured again
//   kCalibrating  EndCalibration, Lost, of this device        kIdle
//   kProbing      EndProbe, Lost, of its ends; GiveUpProbe    kIdle
//   kIdle         OnProbeFailed, the first time               kIdle         kTryAgain
//   kIdle         OnProbeFailed, again, of a device that      kIdle         kPauses, with a timer for the next try; kFails after
//                 cannot be dispensed with                                  executor_timeout_s of that, or where the run does not wait
//   kIdle         OnProbeFailed, again, of another device     kIdle         kRejects
//   kIdle         MeasureLateJoiners                          as MeasureNext, of what concerns them and without timers; true: all is known
//   others        MeasureLateJoiners                          unchanged     false
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/broker/action_queue.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

class Measurement {
 public:
  enum class State : uint8_t { kIdle, kCalibrating, kProbing };
  enum class Next : uint8_t { kWaits, kCalibrates, kProbes, kDone };
  // What is done about a probe that failed.
  struct ProbeVerdict {
    enum class Kind : uint8_t { kTryAgain, kPauses, kFails, kRejects };
    Kind kind = Kind::kTryAgain;
    std::string device;    // kRejects
    std::string sentence;  // kFails, kRejects: why
  };
  // A link between two sites, or inside one, is one resource for all that use it; so is a link with a name.
  using SharedLink = std::tuple<std::string, std::string, std::string>;

  explicit Measurement(const RunOptions& options);
  void Adopt(std::map<std::string, std::string> profiles, std::vector<Link> links);

  State state() const { return state_; }
  const std::string& calibrating() const;  // empty: no device
  const std::map<std::string, std::string>& profiles() const { return profiles_; }
  const std::vector<Link>& links() const { return links_; }
  bool Knows(const std::string& device) const { return profiles_.contains(device); }
  bool KnowsAll(const std::vector<std::string>& devices) const;

  // `after_run`: stages ran, or were to, when it was last asked.
  Next MeasureNext(bool after_run, const ExecutorSet& executors, ActionQueue& queue);
  bool EndCalibration(const std::string& device, const std::string& profile);  // false: it was not asked for
  bool EndProbe(const std::string& src, const std::string& dst);               // false: it was not asked for
  void Learn(const Link& link) { links_.push_back(link); }
  void ForgetFailures(const std::string& src, const std::string& dst) { failed_probes_.erase({src, dst}); }
  ProbeVerdict OnProbeFailed(const std::string& src, const std::string& dst, const absl::Status& why, const ExecutorSet& executors,
                             int64_t last_step, ActionQueue& queue);
  // The probe under way has no answer: its ends.
  std::pair<std::string, std::string> GiveUpProbe();
  void Lost(const std::string& device);

  bool MeasureLateJoiners(const std::vector<std::string>& late_joiners, const RunPlan& plan, const ExecutorSet& executors,
                          ActionQueue& queue);
  // On the ways from stages to late joiners nothing can be measured before the stages stop: the way back stands in for some of them.
  bool has_assumed_links() const { return !assumed_links_.empty(); }

  SharedLink SharedLinkOf(const std::string& src, const std::string& dst, const ExecutorSet& executors) const;
  // The measurement that speaks for a pair; null: none.
  const Link* LinkBetween(const std::string& src, const std::string& dst, const ExecutorSet& executors) const;
  void SetRate(const std::string& src, const std::string& dst, double bytes_per_s, const ExecutorSet& executors);

 private:
  std::set<SharedLink> MeasuredLinks(const ExecutorSet& executors) const;
  void Calibrate(const std::string& device, ActionQueue& queue);
  void Probe(const std::string& src, const std::string& dst, ActionQueue& queue);
  bool PauseBeforeNextProbe(const std::string& src, const std::string& dst, const std::string& why, int64_t last_step, ActionQueue& queue);

  struct FailedProbes {
    int count = 0;
    double waited_s = 0;  // between them
  };

  std::set<std::string> expected_;
  LinkNames link_names_;
  bool waits_for_executors_ = false;
  double executor_timeout_s_ = 0;

  State state_ = State::kIdle;
  std::pair<std::string, std::string> subject_;  // the device that measures itself and nothing, or the ends of a probe
  std::map<std::string, std::string> profiles_;
  std::vector<Link> links_;
  std::map<std::pair<std::string, std::string>, FailedProbes> failed_probes_;  // in a row, by their ends
  std::set<std::pair<std::string, std::string>> assumed_links_;
};

}  // namespace fusionllm::broker
