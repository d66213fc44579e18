#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/load/federation.h"
#include "operator/load/operator_process.h"
#include "operator/load/scenarios.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::load {
namespace {

absl::Duration Now() { return kube::RealClock().Monotonic(); }

// Jobs on the members but the last; how long each took until it ran. Beside them, one in ten jobs wants the last member.
std::vector<absl::Duration> Round(Federation& fleet, int jobs, bool last_answers) {
  const size_t healthy = fleet.members().size() - 1;
  const std::string last = fleet.members().back()->name();
  std::vector<std::string> waiting;
  for (int i = 0; i < jobs; ++i) {
    if (i % 10 == 0) {
      waiting.push_back(absl::StrCat("waits-", i));
      fleet.Submit(waiting.back(), 2, {fleet.members()[static_cast<size_t>(i) % healthy]->name(), last});
    }
    fleet.Submit(absl::StrCat("job-", i), 1, {fleet.members()[static_cast<size_t>(i) % healthy]->name()});
  }
  std::vector<absl::Duration> took;
  for (int i = 0; i < jobs; ++i) {
    const std::string name = absl::StrCat("job-", i);
    Federation::Await("jobs on members that answer run", [&] { return fleet.Job(name).state == "Running"; });
    const JobRecord job = fleet.Job(name);
    took.push_back(job.reached.at("Running") - job.submitted);
  }
  for (const std::string& name : waiting) {
    if (last_answers) Federation::Await("jobs run", [&] { return fleet.Job(name).state == "Running"; });
    if (!last_answers && fleet.Job(name).state == "Running") std::printf("a job runs on a member that does not answer\n");
  }
  return took;
}

void DeleteAll(Federation& fleet, int jobs) {
  for (int i = 0; i < jobs; ++i) {
    fleet.DeleteJob(absl::StrCat("job-", i));
    if (i % 10 == 0) fleet.DeleteJob(absl::StrCat("waits-", i));
  }
  Federation::Await("all jobs are gone", [&] { return fleet.Jobs() == 0 && fleet.Leftovers().empty(); });
}

void PrintTook(const char* when, const std::vector<absl::Duration>& took) {
  std::printf("| %s | %zu | %.0f ms | %.0f ms | %.0f ms |\n", when, took.size(), QuantileMs(took, 0.5), QuantileMs(took, 0.99),
              QuantileMs(took, 1));
}

std::string Holder(Federation& fleet) {
  static const kube::Resource kLeases = {"coordination.k8s.io", "v1", "leases", "Lease", true};
  const auto answer = fleet.hub().admin().Get(kLeases, {"default", "fusion-operator"});
  if (!answer.ok()) return "";
  const auto lease = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  return lease.value(nlohmann::json::json_pointer("/spec/holderIdentity"), "");
}

// Two Pods of one index that could both be at work.
std::optional<std::string> Twice(Federation& fleet) {
  for (const auto& member : fleet.members()) {
    if (const auto doubles = member->Doubles(); !doubles.empty()) return absl::StrCat(member->name(), ": ", absl::StrJoin(doubles, ", "));
  }
  if (const auto doubles = fleet.hub().Doubles(); !doubles.empty()) return absl::StrCat("hub: ", absl::StrJoin(doubles, ", "));
  return std::nullopt;
}

// What a life leads to: the objects that are there, and what the job's status says but its times.
std::vector<std::string> EndOf(Federation& fleet) {
  std::vector<std::string> end = fleet.Leftovers();
  const auto answer = fleet.hub().admin().Get(kFusionJobs, {kNamespace, "train"});
  const auto job = nlohmann::json::parse(answer.value_or("null"), nullptr, /*allow_exceptions=*/false);
  const auto& status = job.value("status", nlohmann::json::object());
  end.push_back(absl::StrCat("state ", status.value("state", "")));
  end.push_back(absl::StrCat("restarts ", status.value("restarts", 0)));
  for (const auto& condition : status.value("conditions", nlohmann::json::array())) {
    end.push_back(
        absl::StrCat("condition ", condition.value("type", ""), " ", condition.value("status", ""), " ", condition.value("reason", "")));
  }
  return end;
}

// One job from its creation to its deletion, with one restart; the operator is killed when a write of its is done that is not answered yet.
class Life {
 public:
  // After that many writes; 0: never.
  explicit Life(int after) : after_(after), fleet_(2), op_(Start()) {
    op_->WaitReady();
    Federation::Await("all members are connected", [&] { return fleet_.Connected() == 2; });
    fleet_.AwaitQuiet(absl::Milliseconds(50));
    fleet_.ForgetRequests();
    pid_ = op_->pid();
    fleet_.OnWrite([this](const kube::testing::RecordedRequest& request) {
      if (++writes_ != after_) return;
      kill(pid_, SIGKILL);
      const std::lock_guard lock(mutex_);
      last_ = absl::StrCat(request.verb, " ", request.target.substr(0, request.target.find('?')));
    });
  }
  // How it ended, before its deletion. Ends the program where that is not as `expected`, unless that is empty, or does not come.
  std::vector<std::string> Run(const std::vector<std::string>& expected) {
    fleet_.Submit("train", 4);
    Reach("the job runs", [&] { return fleet_.Job("train").state == "Running" && fleet_.RunningPods() == 5; });
    (void)fleet_.hub().EndPod("train-broker-r0", "broker", 1, R"({"error":"killed"})");
    Reach("its next attempt runs", [&] {
      return fleet_.Job("train").state == "Running" && fleet_.RunningPods() == 5 &&
             absl::StrContains(absl::StrJoin(fleet_.Leftovers(), " "), "train-broker-r1");
    });
    (void)fleet_.hub().EndPod("train-broker-r1", "broker", 0, R"({"step":100,"steps":100,"loss":2.5,"exit_code":0})");
    Reach("it is complete", [&] { return fleet_.Job("train").state == "Complete" && fleet_.RunningPods() == 0; });
    // Pods that are being deleted run no more, and are gone a moment later.
    for (int writes = -1; writes != writes_;) {
      writes = writes_;
      Reach("nothing more comes", [&, until = Now() + kQuiet] { return Now() > until; });
    }
    if (!expected.empty()) Reach("it ends as without a death", [&] { return EndOf(fleet_) == expected; });
    std::vector<std::string> end = EndOf(fleet_);
    fleet_.DeleteJob("train");
    Reach("it is deleted", [&] { return fleet_.Jobs() == 0 && fleet_.Leftovers().empty(); });
    return end;
  }
  bool killed() const { return after_ > 0 && writes_ >= after_; }
  int writes() const { return writes_; }
  std::string Writes() {
    return absl::StrCat("hub: ", fleet_.TrafficOf(fleet_.hub()).Text(), "; members: ", fleet_.TrafficOfMembers().Text());
  }

 private:
  static constexpr absl::Duration kQuiet = absl::Milliseconds(300), kPatience = absl::Minutes(2);

  std::unique_ptr<OperatorProcess> Start() { return std::make_unique<OperatorProcess>(fleet_.Arguments(false), fleet_.log()); }

  void Reach(const char* what, const std::function<bool()>& holds) {
    const bool reached = Federation::WaitUntil(
        [&] {
          if (!again_ && killed()) {
            again_ = true;
            op_->Wait();
            op_ = Start();
          }
          return Twice(fleet_).has_value() || holds();
        },
        kPatience);
    const auto twice = Twice(fleet_);
    if (reached && !twice.has_value()) return;
    const std::lock_guard lock(mutex_);
    std::printf("killed after write %d (%s): %s\n  %s\n", after_, last_.c_str(),
                twice.has_value() ? absl::StrCat("two of one index at once: ", *twice).c_str()
                                  : absl::StrCat("not within ", absl::FormatDuration(kPatience), ": ", what, ". There is:").c_str(),
                absl::StrJoin(EndOf(fleet_), "\n  ").c_str());
    std::exit(1);
  }

  const int after_;
  bool again_ = false;  // another operator was started since
  std::atomic<int> writes_ = 0;
  std::atomic<pid_t> pid_ = -1;
  std::mutex mutex_;
  std::string last_;
  Federation fleet_;
  std::unique_ptr<OperatorProcess> op_;
};

}  // namespace

void Hung(const HungOptions& options) {
  Federation fleet(options.members);
  // With the limit of requests to the hub that an operator has, all jobs of a round take the two seconds of that, whatever a member does.
  std::vector<std::string> arguments = fleet.Arguments(false);
  arguments.insert(arguments.end(), {"--kube-api-qps", "10000", "--kube-api-burst", "10000"});
  const OperatorProcess op(arguments, fleet.log());
  op.WaitReady();
  const auto all = [&] { return fleet.Connected() == options.members; };
  Federation::Await("all members are connected", all);
  kube::testing::FakeHttpServer& front = fleet.members().back()->front();

  // Of the rounds in which it answers every second one apart: how much those differ is what a difference to the others must exceed.
  std::vector<absl::Duration> answering[2], hung;
  (void)Round(fleet, options.jobs, true);  // connections are made, memory is had
  DeleteAll(fleet, options.jobs);
  std::printf("| the eighth member | jobs on the others | p50 until Running | p99 | longest |\n|---|---|---|---|---|\n");
  for (int round = 0; round < options.rounds; ++round) {
    for (const bool answers : {round % 2 == 0, round % 2 != 0}) {
      front.Freeze(!answers);
      const std::vector<absl::Duration> took = Round(fleet, options.jobs, answers);
      auto& to = answers ? answering[round % 2] : hung;
      to.insert(to.end(), took.begin(), took.end());
      PrintTook(absl::StrCat(answers ? "answers" : "answers nothing", ", round ", round).c_str(), took);
      front.Freeze(false);
      Federation::Await("all members are connected", all);
      DeleteAll(fleet, options.jobs);
    }
  }
  std::vector<absl::Duration> answering_all = answering[0];
  answering_all.insert(answering_all.end(), answering[1].begin(), answering[1].end());
  PrintTook("answers", answering_all);
  PrintTook("answers nothing", hung);
  const auto change = [](const std::vector<absl::Duration>& from, const std::vector<absl::Duration>& to) {
    return 100 * (QuantileMs(to, 0.99) / QuantileMs(from, 0.99) - 1);
  };
  std::printf("p99 %+.1f %%", change(answering_all, hung));
  if (!answering[1].empty()) {
    std::printf("; of the odd rounds in which it answers against the even ones %+.1f %%, by the machine alone",
                change(answering[0], answering[1]));
  }
  std::printf("\n");
  std::fflush(stdout);

  const absl::Duration frozen = Now();
  front.Freeze(true);
  const bool noticed = Federation::WaitUntil([&] { return fleet.Connected() == options.members - 1; }, absl::Minutes(10));
  if (noticed) {
    std::printf("a member that answers nothing is told as not connected after %.1f s\n", absl::ToDoubleSeconds(Now() - frozen));
  } else {
    std::printf("a member that answers nothing was not noticed within ten minutes\n");
  }
  front.Freeze(false);
}

void Failover(const FailoverOptions& options) {
  Federation fleet(1);
  std::printf(
      "| the leading operator ends by | exit code | until another leads | until a job that came right after is begun "
      "|\n|---|---|---|---|\n");
  auto leading = std::make_unique<OperatorProcess>(fleet.Arguments(true), fleet.log());
  leading->WaitReady();
  Federation::Await("somebody leads", [&] { return !Holder(fleet).empty(); });
  for (int round = 0; round < 2 * options.rounds; ++round) {
    auto standby = std::make_unique<OperatorProcess>(fleet.Arguments(true), fleet.log());
    standby->WaitReady();
    // So that it has seen the lease, as a standby of old has.
    kube::RealClock().WaitFor(absl::Seconds(5), {});
    const std::string before = Holder(fleet);
    const int signal = round % 2 == 0 ? SIGTERM : SIGKILL;
    const absl::Duration begin = Now();
    leading->Signal(signal);
    const std::string name = absl::StrCat("job-", round);
    fleet.Submit(name, 2);
    const int code = leading->Wait();
    Federation::Await("another leads", [&] {
      const std::string holder = Holder(fleet);
      return !holder.empty() && holder != before;
    });
    const absl::Duration led = Now() - begin;
    Federation::Await("the job is begun", [&] { return !fleet.Job(name).state.empty(); });
    std::printf("| %s | %d | %.2f s | %.2f s |\n", signal == SIGTERM ? "SIGTERM" : "SIGKILL", code, absl::ToDoubleSeconds(led),
                absl::ToDoubleSeconds(Now() - begin));
    std::fflush(stdout);
    Federation::Await("the job runs", [&] { return fleet.Job(name).state == "Running"; });
    leading = std::move(standby);
  }
}

void Sweep(const SweepOptions& options) {
  std::vector<std::string> end;
  {
    Life whole(0);
    end = whole.Run({});
    std::printf("a life of %d writes; %s\nits end:\n  %s\n", whole.writes(), whole.Writes().c_str(), absl::StrJoin(end, "\n  ").c_str());
    std::fflush(stdout);
  }
  int after = options.first;
  for (;; ++after) {
    Life life(after);
    (void)life.Run(end);
    if (!life.killed()) break;  // a life has fewer writes than that
    if (after % 10 == 0) std::printf("killed after write %d: the same\n", after);
    std::fflush(stdout);
  }
  std::printf(
      "killed after each write of a job's life, %d to %d, before the answer: the same end every time, nothing left after its deletion, "
      "never "
      "two Pods of one index\n",
      options.first, after - 1);
}

}  // namespace fusionllm::op::load
