// Who takes part in a run: executors that are here, those that may yet come, those that are not counted on, and who of them may train.
//
// Events in, facts out; it orders nothing. Not thread-safe.
//
// State of an executor, by its name:
//   state     event                                next      what happens
//   kAbsent   Join                                 kPresent
//   kAbsent   GiveUpMissing, of those expected     kGivenUp  Missing() no longer has it
//   kGivenUp  AwaitGivenUp                         kAbsent
//   kGivenUp  Join                                 kPresent
//   kPresent  Join, the same process               kPresent  what it says of itself is taken
//   kPresent  Leave, of this process               kAbsent   another process in its place joins after that
//   kPresent  Leave, of another process            kPresent  false: news of a process that has been replaced
//   kPresent  MarkUnfit, then Leave                kUnfit
//   kUnfit    Admit, the process that was marked   kUnfit    false
//   kUnfit    Admit, a later process of that name  kAbsent   it may join
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/broker/events.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

class ExecutorSet {
 public:
  enum class State : uint8_t { kAbsent, kPresent, kGivenUp, kUnfit };

  explicit ExecutorSet(const RunOptions& options);

  bool Admit(const Executor& executor);
  void Join(const Executor& executor);
  bool Leave(const std::string& name, uint64_t incarnation);
  void MarkUnfit(const std::string& name);  // it is present: it has said that it cannot take part, or is found unable to
  void GiveUpMissing();
  void AwaitGivenUp();

  State StateOf(const std::string& name) const;
  bool IsPresent(const std::string& name) const { return executors_.contains(name); }
  bool AllPresent(const std::vector<std::string>& names) const;
  bool IsUnfit(const std::string& name) const;
  bool IsSameProcess(const Executor& executor) const;  // as the one of its name that is present
  const std::map<std::string, Executor>& present() const { return executors_; }
  const Executor& at(const std::string& name) const { return executors_.at(name); }  // it is present
  const std::string& SiteOf(const std::string& name) const;                          // empty: it is not present

  std::vector<std::string> Missing() const;  // expected executors that may yet come
  int64_t CountNonSpares() const;            // present
  // Before the first plan (`planned` false) an executor that is expected, and is no spare, cannot be dispensed with: what ails it (the
  // job's data or back end) mostly ails all. Later the others go on, and the planner says whether they are enough.
  bool IsDispensable(const std::string& name, bool planned, bool gathers) const;  // it is present
  bool JoinedByItself(const std::string& name) const;                             // to an open run, whose data it does not have

  // The training data.
  bool HasData(const std::string& name) const { return data_devices_.contains(name); }
  bool LacksData() const;                      // no device that has it is present, where only some have it
  bool had_data() const { return had_data_; }  // one that has it has joined

  // Who trains.
  bool MayTrain(const Executor& executor) const;  // by the job, in need
  int Trainers() const;                           // executors that may and are no spares
  void RecordTrainers(int trainers);              // a plan of this run was made over so many
  int DesiredExecutors() const;                   // executors that the run trains on when none is missing

  // Devices that come while the plan in force does with fewer than the run wants.
  bool IsBelowDesired(const RunPlan& plan) const;
  bool NeedsSpares(const RunPlan& plan) const;                      // to make up for who is missing
  std::vector<std::string> LateJoiners(const RunPlan& plan) const;  // that no planner was asked about yet, or not for the last time
  void MarkConsidered(const std::vector<std::string>& names);       // the planner's last word on them is known
  bool IsConsidered(const std::string& name) const { return considered_.contains(name); }

 private:
  struct Absence {
    State state = State::kAbsent;  // kGivenUp or kUnfit
    uint64_t incarnation = 0;      // of the unfit process
  };

  std::set<std::string> expected_, data_devices_, excluded_;
  int min_executors_ = 0;
  int64_t min_memory_bytes_ = 0;
  std::map<std::string, Executor> executors_;
  std::map<std::string, Absence> absences_;  // of those not present, and of one that was marked and has not left yet
  bool had_data_ = false;
  std::set<std::string> no_trainers_;  // of all that have joined: spares, and whom the job does not want
  std::set<std::string> considered_;   // were in a question to the planner that has its last answer
  int max_trainers_ = 0;
};

}  // namespace fusionllm::broker
