#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/federation/cluster_registry.h"
#include "tests/load/federation.h"
#include "tests/load/operator_process.h"
#include "tests/load/scenarios.h"

namespace fusionllm::load {
namespace {

using kube::testing::RecordedRequest;

double Seconds(absl::Duration time) { return absl::ToDoubleSeconds(time); }

std::string NameOf(int job) { return absl::StrCat("job-", job); }

void PrintUsage(const char* when, const OperatorProcess& op, double cpu_before) {
  const Usage usage = op.MeasureUsage();
  std::printf("| operator, %s | CPU %.2f s, resident %.1f MiB, peak %.1f MiB |\n", when, usage.cpu_s - cpu_before, usage.resident_mib,
              usage.peak_mib);
}

// Of this process, whose threads are the clusters.
double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void PrintTraffic(const char* when, Federation& fleet) {
  const Traffic hub = fleet.TrafficOf(fleet.hub()), members = fleet.TrafficOfMembers();
  std::printf("| requests to the hub, %s | %d, of which %d write: %s |\n", when, hub.total, hub.writes, hub.Text().c_str());
  std::printf("| requests to members, %s | %d, of which %d write: %s |\n", when, members.total, members.writes, members.Text().c_str());
}

void PrintReconciles(const char* when, const OperatorProcess& op) {
  const std::string metrics = op.Metrics();
  for (const auto& [label, prefix] : {std::pair("hub", "fusionjob"), std::pair("members", "member-")}) {
    const auto quantile = [&, prefix = prefix](const char* name, double share) {
      return 1e3 * HistogramQuantile(metrics, name, "controller", prefix, share);
    };
    std::printf("| looks at a job, %s, %s | p50 %.1f ms, p99 %.1f ms; waited for a worker p50 %.1f ms, p99 %.1f ms |\n", label, when,
                quantile("controller_runtime_reconcile_time_seconds", 0.5), quantile("controller_runtime_reconcile_time_seconds", 0.99),
                quantile("workqueue_queue_duration_seconds", 0.5), quantile("workqueue_queue_duration_seconds", 0.99));
  }
  std::fflush(stdout);
}

int Lists(const Traffic& traffic) {
  int lists = 0;
  for (const auto& [what, count] : traffic.requests) lists += absl::StartsWith(what, "list ") ? count : 0;
  return lists;
}

// The first request of the operator after `since` whose target holds `what`, by verb; infinite if there is none.
absl::Duration FirstAfter(const std::vector<RecordedRequest>& requests, absl::Duration since, const char* verb, const std::string& what) {
  for (const RecordedRequest& request : requests) {
    if (request.at >= since && request.verb == verb && absl::StrContains(request.target, what)) return request.at - since;
  }
  return absl::InfiniteDuration();
}

// Executors fail one at a time; each must be taken away and made again.
void FailExecutors(Federation& fleet, int failures) {
  std::vector<absl::Duration> reactions, replaced;
  const int pods = fleet.RunningPods();
  for (int i = 0; i < failures; ++i) {
    const size_t which = static_cast<size_t>(i) % fleet.members().size();
    SimCluster& member = *fleet.members()[which];
    fleet.ForgetRequests();
    const std::string pod = absl::StrCat(NameOf(i), "-", member.name(), "-0-r0");
    const absl::Duration failed = Now();
    if (const absl::Status status = member.EndPod(pod, "executor", 1, "killed"); !status.ok()) {
      std::printf("| executor %s | %s |\n", pod.c_str(), std::string(status.message()).c_str());
      return;
    }
    Federation::Await("a failed executor is replaced", [&] { return fleet.RunningPods() == pods && member.LastStart() > failed; });
    reactions.push_back(FirstAfter(fleet.OperatorRequests(member), failed, "delete", pod));
    replaced.push_back(member.LastStart() - failed);
  }
  std::printf("| executor fails: until its Pod is deleted | %zu times, p50 %.1f ms, p99 %.1f ms |\n", reactions.size(),
              QuantileMs(reactions, 0.5), QuantileMs(reactions, 0.99));
  std::printf("| executor fails: until a new one runs | p50 %.1f ms, p99 %.1f ms |\n", QuantileMs(replaced, 0.5),
              QuantileMs(replaced, 0.99));
}

// Brokers fail one at a time; each job must start again.
void FailBrokers(Federation& fleet, int failures) {
  std::vector<absl::Duration> reactions, again;
  for (int i = 0; i < failures; ++i) {
    const int pods = fleet.RunningPods();
    fleet.ForgetRequests();
    const absl::Duration failed = Now();
    (void)fleet.hub().EndPod(absl::StrCat(NameOf(i), "-broker-r0"), "broker", 1, R"({"error":"killed"})");
    Federation::Await("a job starts again", [&] {
      return fleet.hub().LastStart() > failed && fleet.RunningPods() == pods && fleet.Job(NameOf(i)).state == "Running";
    });
    absl::Duration last = fleet.hub().LastStart();
    for (const auto& member : fleet.members()) last = std::max(last, member->LastStart());
    reactions.push_back(
        FirstAfter(fleet.OperatorRequests(fleet.hub()), failed, "apply", absl::StrCat("fusionjobs/", NameOf(i), "/status")));
    again.push_back(last - failed);
  }
  std::printf("| broker fails: until the restart is in the job's status | %zu times, p50 %.1f ms, p99 %.1f ms |\n", reactions.size(),
              QuantileMs(reactions, 0.5), QuantileMs(reactions, 0.99));
  std::printf("| broker fails: until all Pods of the next attempt run | p50 %.1f ms, p99 %.1f ms |\n", QuantileMs(again, 0.5),
              QuantileMs(again, 0.99));
  std::fflush(stdout);
}

// What clusters have taken and run is reported in their statuses up to kSummaryEvery and kResyncPeriod later: what is written for that long
// after the last job ran is still of the load. Twice kSummaryEvery is longer than both.
void Settle(Federation& fleet) {
  static_assert(op::federation::ClusterRegistry::kResyncPeriod < op::federation::ClusterRegistry::kSummaryEvery);
  const absl::Duration begin = Now();
  fleet.ForgetRequests();
  fleet.AwaitQuiet(2 * op::federation::ClusterRegistry::kSummaryEvery);
  std::printf("| until nothing has been written for %.0f s | %.0f s; %d writes |\n",
              Seconds(2 * op::federation::ClusterRegistry::kSummaryEvery), Seconds(Now() - begin), fleet.Writes());
  std::fflush(stdout);
}

}  // namespace

void Fleet(const FleetOptions& options) {
  Federation fleet(options.members);
  auto op = std::make_unique<OperatorProcess>(fleet.Arguments(false), fleet.log());
  std::printf("| %d jobs of %d executors over %d members | |\n|---|---|\n", options.jobs, options.executors, options.members);
  std::printf("| start to ready, nothing there | %.0f ms |\n", absl::ToDoubleMilliseconds(op->WaitReady()));
  Federation::Await("all members are connected", [&] { return fleet.Connected() == options.members; });
  PrintUsage("connected", *op, 0);

  fleet.ForgetRequests();
  double cpu = op->MeasureUsage().cpu_s;
  absl::Duration begin = Now();
  for (int i = 0; i < options.jobs; ++i) fleet.Submit(NameOf(i), options.executors);
  const absl::Duration submitted = Now() - begin;
  Federation::Await(
      "all jobs run", [&] { return fleet.JobsIn("Running") == options.jobs; }, absl::Hours(1));
  std::printf("| until all run | %.1f s; submitted within %.1f s |\n", Seconds(Now() - begin), Seconds(submitted));
  std::vector<absl::Duration> waits;
  for (int i = 0; i < options.jobs; ++i) {
    const JobRecord job = fleet.Job(NameOf(i));
    waits.push_back(job.reached.at("Running") - job.submitted);
  }
  std::printf("| from a job's submission until it runs | p50 %.1f s, p99 %.1f s |\n", QuantileMs(waits, 0.5) / 1e3,
              QuantileMs(waits, 0.99) / 1e3);
  PrintUsage("until all run", *op, cpu);
  PrintReconciles("until all run", *op);
  fleet.AwaitQuiet(absl::Seconds(12));
  PrintTraffic("until all run", fleet);
  Settle(fleet);

  fleet.ForgetRequests();
  cpu = op->MeasureUsage().cpu_s;
  begin = Now();
  kube::RealClock().WaitFor(options.rest, {});
  std::printf("| at rest for %.0f s | %d writes, %d requests; CPU %.1f %% of a core |\n", Seconds(Now() - begin), fleet.Writes(),
              fleet.TrafficOf(fleet.hub()).total + fleet.TrafficOfMembers().total,
              100 * (op->MeasureUsage().cpu_s - cpu) / Seconds(Now() - begin));
  PrintUsage("at rest", *op, cpu);
  std::fflush(stdout);

  const int failures = std::min(options.failures, options.jobs);
  FailExecutors(fleet, failures);
  FailBrokers(fleet, failures);

  Settle(fleet);
  fleet.ForgetRequests();
  begin = Now();
  op->Signal(SIGTERM);
  const int code = op->Wait();
  std::printf("| end on SIGTERM | %.2f s, exit code %d |\n", Seconds(Now() - begin), code);
  op = std::make_unique<OperatorProcess>(fleet.Arguments(false), fleet.log());
  std::printf("| start to ready, all jobs there | %.0f ms |\n", absl::ToDoubleMilliseconds(op->WaitReady()));
  Federation::Await("all members are listed", [&] {
    return std::all_of(fleet.members().begin(), fleet.members().end(),
                       [&](const auto& member) { return fleet.TrafficOf(*member).requests["watch pods"] > 0; });
  });
  fleet.AwaitQuiet(absl::Seconds(12));
  std::printf("| written by an operator that starts when all is there | %d |\n", fleet.Writes());
  PrintTraffic("started when all is there", fleet);
  PrintUsage("started when all is there", *op, 0);

  fleet.ForgetRequests();
  cpu = op->MeasureUsage().cpu_s;
  begin = Now();
  for (int i = 0; i < options.jobs; ++i) {
    (void)fleet.hub().EndPod(absl::StrCat(NameOf(i), "-broker-r", i < failures ? 1 : 0), "broker", 0,
                             R"({"step":100,"steps":100,"loss":2.5,"exit_code":0})");
  }
  Federation::Await(
      "all jobs are complete", [&] { return fleet.JobsIn("Complete") == options.jobs && fleet.RunningPods() == 0; }, absl::Hours(1));
  std::printf("| until all are complete and their executors gone | %.1f s |\n", Seconds(Now() - begin));
  PrintUsage("until all are complete", *op, cpu);
  PrintTraffic("until all are complete", fleet);

  fleet.ForgetRequests();
  cpu = op->MeasureUsage().cpu_s;
  begin = Now();
  for (int i = 0; i < options.jobs; ++i) fleet.DeleteJob(NameOf(i));
  Federation::Await(
      "all jobs are gone", [&] { return fleet.Jobs() == 0; }, absl::Hours(1));
  std::printf("| until all are deleted | %.1f s; objects left: %zu |\n", Seconds(Now() - begin), fleet.Leftovers().size());
  for (const std::string& left : fleet.Leftovers()) std::printf("left: %s\n", left.c_str());
  PrintUsage("until all are deleted", *op, cpu);
  PrintTraffic("until all are deleted", fleet);
  PrintReconciles("since its start", *op);
}

void Start(const StartOptions& options) {
  Federation fleet(options.members);
  {
    const OperatorProcess op(fleet.Arguments(false), fleet.log());
    op.WaitReady();
    for (int i = 0; i < options.jobs; ++i) fleet.Submit(NameOf(i), options.executors);
    Federation::Await(
        "all jobs run", [&] { return fleet.JobsIn("Running") == options.jobs; }, absl::Hours(1));
    fleet.AwaitQuiet(absl::Seconds(2));
  }
  std::printf(
      "| %d jobs of %d executors over %d members | ready | all members listed | CPU until ready: operator | clusters | until listed: "
      "operator "
      "| clusters | lists of members begun before ready |\n|---|---|---|---|---|---|---|---|\n",
      options.jobs, options.executors, options.members);
  std::vector<absl::Duration> ready, listed;
  for (int round = 0; round < options.rounds; ++round) {
    fleet.ForgetRequests();
    const absl::Duration begin = Now();
    const double clusters_before_s = OwnCpuSeconds();
    const OperatorProcess op(fleet.Arguments(false), fleet.log());
    ready.push_back(op.WaitReady());
    const double ready_s = op.MeasureUsage().cpu_s, clusters_ready_s = OwnCpuSeconds() - clusters_before_s;
    const int early = Lists(fleet.TrafficOfMembers());
    Federation::Await("all members are listed", [&] {
      return std::all_of(fleet.members().begin(), fleet.members().end(),
                         [&](const auto& member) { return fleet.TrafficOf(*member).requests["watch pods"] > 1; });
    });
    listed.push_back(Now() - begin);
    std::printf("| round %d | %.0f ms | %.0f ms | %.2f s | %.2f s | %.2f s | %.2f s | %d |\n", round,
                absl::ToDoubleMilliseconds(ready.back()), absl::ToDoubleMilliseconds(listed.back()), ready_s, clusters_ready_s,
                op.MeasureUsage().cpu_s, OwnCpuSeconds() - clusters_before_s, early);
    std::fflush(stdout);
  }
  std::printf("| of all | p50 %.0f ms, longest %.0f ms | p50 %.0f ms, longest %.0f ms | | | | | |\n", QuantileMs(ready, 0.5),
              QuantileMs(ready, 1), QuantileMs(listed, 0.5), QuantileMs(listed, 1));
}

void Wide(const WideOptions& options) {
  Federation fleet(options.members);
  const OperatorProcess op(fleet.Arguments(false), fleet.log());
  op.WaitReady();
  Federation::Await("all members are connected", [&] { return fleet.Connected() == options.members; });
  for (const auto& member : fleet.members()) member->front().SetDelay(options.delay);
  std::printf("| %d members x %d executors, answers after %.0f ms | last Pod created | all run |\n|---|---|---|\n", options.members,
              options.executors_each, absl::ToDoubleMilliseconds(options.delay));
  for (int round = 0; round < options.rounds; ++round) {
    fleet.ForgetRequests();
    const absl::Duration begin = Now();
    fleet.Submit(NameOf(round), options.members * options.executors_each);
    Federation::Await("the job runs", [&] { return fleet.Job(NameOf(round)).state == "Running"; });
    const absl::Duration running = Now() - begin;
    absl::Duration first = absl::InfiniteDuration(), last;
    for (const auto& member : fleet.members()) {
      for (const RecordedRequest& request : fleet.OperatorRequests(*member)) {
        if (request.verb != "create" || !absl::StrContains(request.target, "/pods")) continue;
        first = std::min(first, request.at);
        last = std::max(last, request.at);
      }
    }
    std::printf("| round %d | %.2f s after the first, %.2f s after the job | %.2f s |\n", round, Seconds(last - first),
                Seconds(last - begin), Seconds(running));
    fleet.DeleteJob(NameOf(round));
    Federation::Await("the job is gone", [&] { return fleet.Jobs() == 0; });
  }
}

}  // namespace fusionllm::load
