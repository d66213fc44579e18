#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

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

// The executors that run of each index on each member: two of one are two ranks at once.
std::optional<std::string> Twice(Federation& fleet) {
  for (const auto& member : fleet.members()) {
    std::set<std::string> seen;
    for (const std::string& object : member->server().objects()) {
      if (!absl::StartsWith(object, "pods ")) continue;
      const std::string slot = object.substr(0, object.rfind("-r"));
      if (!seen.insert(slot).second) return absl::StrCat(member->name(), " ", object);
    }
  }
  return std::nullopt;
}

}  // namespace

void Hung(const HungOptions& options) {
  Federation fleet(options.members);
  const OperatorProcess op(fleet.Arguments(false), fleet.log());
  op.WaitReady();
  const auto all = [&] { return fleet.Connected() == options.members; };
  Federation::Await("all members are connected", all);
  kube::testing::FakeHttpServer& front = fleet.members().back()->front();

  std::vector<absl::Duration> answering, hung;
  (void)Round(fleet, options.jobs, true);  // connections are made, memory is had
  DeleteAll(fleet, options.jobs);
  for (int round = 0; round < options.rounds; ++round) {
    for (const bool answers : {round % 2 == 0, round % 2 != 0}) {
      front.Freeze(!answers);
      const std::vector<absl::Duration> took = Round(fleet, options.jobs, answers);
      auto& to = answers ? answering : hung;
      to.insert(to.end(), took.begin(), took.end());
      front.Freeze(false);
      Federation::Await("all members are connected", all);
      DeleteAll(fleet, options.jobs);
    }
  }
  std::printf("| the eighth member | jobs on the others | p50 until Running | p99 | longest |\n|---|---|---|---|---|\n");
  PrintTook("answers", answering);
  PrintTook("answers nothing", hung);
  std::printf("p99 %+.1f %%\n", 100 * (QuantileMs(hung, 0.99) / QuantileMs(answering, 0.99) - 1));

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

void Sweep() {
  std::vector<std::string> end;
  int runs = 0, restarts_of_jobs = 0;
  for (int after = 1;; ++after) {
    Federation fleet(2);
    auto op = std::make_unique<OperatorProcess>(fleet.Arguments(false), fleet.log());
    op->WaitReady();
    Federation::Await("all members are connected", [&] { return fleet.Connected() == 2; });
    fleet.AwaitQuiet(absl::Milliseconds(50));
    fleet.ForgetRequests();
    bool killed = false;
    const auto reach = [&](const char* what, const std::function<bool()>& holds) {
      Federation::Await(what, [&] {
        if (const auto twice = Twice(fleet)) {
          std::printf("two executors of one index at once, killed after write %d: %s\n", after, twice->c_str());
          std::exit(1);
        }
        if (!killed && fleet.Writes() >= after) {
          killed = true;
          op->Signal(SIGKILL);
          op->Wait();
          op = std::make_unique<OperatorProcess>(fleet.Arguments(false), fleet.log());
        }
        return holds();
      });
    };
    fleet.Submit("train", 4);
    reach("the job runs", [&] { return fleet.Job("train").state == "Running" && fleet.RunningPods() == 5; });
    (void)fleet.hub().EndPod("train-broker-r0", "broker", 1, R"({"error":"killed"})");
    reach("its next attempt runs", [&] {
      return fleet.Job("train").state == "Running" && fleet.RunningPods() == 5 && !Twice(fleet).has_value() &&
             absl::StrJoin(fleet.Leftovers(), " ").find("train-broker-r1") != std::string::npos;
    });
    (void)fleet.hub().EndPod("train-broker-r1", "broker", 0, R"({"step":100,"steps":100,"loss":2.5,"exit_code":0})");
    reach("it is complete", [&] { return fleet.Job("train").state == "Complete" && fleet.RunningPods() == 0; });
    const std::vector<std::string> now = fleet.Leftovers();
    if (end.empty()) end = now;
    if (now != end) {
      std::printf("killed after write %d it ends with\n  %s\ninstead of\n  %s\n", after, absl::StrJoin(now, "\n  ").c_str(),
                  absl::StrJoin(end, "\n  ").c_str());
      std::exit(1);
    }
    const auto job = nlohmann::json::parse(fleet.hub().admin().Get(kFusionJobs, {kNamespace, "train"}).value());
    if (job["status"]["restarts"] != 1) ++restarts_of_jobs;
    fleet.DeleteJob("train");
    reach("it is deleted", [&] { return fleet.Jobs() == 0 && fleet.Leftovers().empty(); });
    ++runs;
    if (!killed) break;  // a life has fewer writes than that
  }
  std::printf(
      "killed after each of %d writes of a job's life: the same end every time, nothing left after its deletion, never two executors of "
      "one index; %d runs counted another number of restarts than one\n",
      runs - 1, restarts_of_jobs);
}

}  // namespace fusionllm::op::load
