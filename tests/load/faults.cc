#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "tests/load/federation.h"
#include "tests/load/operator_process.h"
#include "tests/load/scenarios.h"

namespace fusionllm::load {
namespace {

// Jobs on the members but the last, one every `pause`; how long each took until it ran. Beside them, one in ten jobs wants the last member.
std::vector<absl::Duration> Round(Federation& fleet, int jobs, absl::Duration pause, bool last_answers) {
  const size_t healthy = fleet.members().size() - 1;
  const std::string last = fleet.members().back()->name();
  std::vector<std::string> waiting;
  for (int i = 0; i < jobs; ++i) {
    if (i % 10 == 0) {
      waiting.push_back(absl::StrCat("waits-", i));
      fleet.Submit(waiting.back(), 2, {fleet.members()[static_cast<size_t>(i) % healthy]->name(), last});
    }
    fleet.Submit(absl::StrCat("job-", i), 1, {fleet.members()[static_cast<size_t>(i) % healthy]->name()});
    kube::RealClock().WaitFor(pause, {});
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
  const auto lease = base::ParseJson(*answer);
  return lease.value(nlohmann::json::json_pointer("/spec/holderIdentity"), "");
}

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
  std::vector<double> ratios;                             // of the p99 of each round
  (void)Round(fleet, options.jobs, options.pause, true);  // connections are made, memory is had
  DeleteAll(fleet, options.jobs);
  std::printf("| the eighth member | jobs on the others | p50 until Running | p99 | longest |\n|---|---|---|---|---|\n");
  for (int round = 0; round < options.rounds; ++round) {
    double p99[2] = {};
    for (const bool answers : {round % 2 == 0, round % 2 != 0}) {
      front.Freeze(!answers);
      const std::vector<absl::Duration> took = Round(fleet, options.jobs, options.pause, answers);
      p99[answers ? 0 : 1] = QuantileMs(took, 0.99);
      auto& to = answers ? answering[round % 2] : hung;
      to.insert(to.end(), took.begin(), took.end());
      PrintTook(absl::StrCat(answers ? "answers" : "answers nothing", ", round ", round).c_str(), took);
      front.Freeze(false);
      Federation::Await("all members are connected", all);
      DeleteAll(fleet, options.jobs);
    }
    ratios.push_back(p99[1] / p99[0]);
  }
  std::vector<absl::Duration> answering_all = answering[0];
  answering_all.insert(answering_all.end(), answering[1].begin(), answering[1].end());
  PrintTook("answers", answering_all);
  PrintTook("answers nothing", hung);
  const auto change = [](const std::vector<absl::Duration>& from, const std::vector<absl::Duration>& to) {
    return 100 * (QuantileMs(to, 0.99) / QuantileMs(from, 0.99) - 1);
  };
  std::sort(ratios.begin(), ratios.end());
  std::printf("p99 in the middle one of the rounds, each against its own other half: %+.1f %%; of all rounds together %+.1f %%",
              100 * (ratios[ratios.size() / 2] - 1), change(answering_all, hung));
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
    std::printf("a member that answers nothing is reported as not connected after %.1f s\n", absl::ToDoubleSeconds(Now() - frozen));
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
  Federation::Await("an operator leads", [&] { return !Holder(fleet).empty(); });
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

}  // namespace fusionllm::load
