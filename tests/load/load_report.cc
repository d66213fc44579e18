// Figures of the operator under load: the real program against API servers in memory, over TLS on this machine, with kubelets that are
// played. Each command makes clusters of its own and prints Markdown; docs/results/operator.md has results. Takes minutes.
//   FUSIONLLM_BIN_DIR=build/bin build/benchmarks/load_report fleet
// The operator's log goes to $FUSIONLLM_LOAD_LOG, if that is set.
#include <CLI/CLI.hpp>
#include <csignal>

#include "tests/load/crash_run.h"
#include "tests/load/scenarios.h"

namespace fusionllm::load {
namespace {

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Measures fusion-operator under load");
  app.require_subcommand(1);

  FleetOptions fleet;
  double rest_s = 120;
  CLI::App* const fleet_command = app.add_subcommand("fleet", "Many jobs at once, from submission to deletion");
  fleet_command->add_option("--jobs", fleet.jobs)->check(CLI::Range(1, 100'000))->capture_default_str();
  fleet_command->add_option("--executors", fleet.executors, "Of each job")->check(CLI::Range(1, 1000))->capture_default_str();
  fleet_command->add_option("--members", fleet.members)->check(CLI::Range(1, 64))->capture_default_str();
  fleet_command->add_option("--rest", rest_s, "Seconds for which nothing happens")->check(CLI::NonNegativeNumber)->capture_default_str();
  fleet_command->add_option("--failures", fleet.failures)->check(CLI::Range(1, 1000))->capture_default_str();

  WideOptions wide;
  double delay_ms = 0;
  CLI::App* const wide_command = app.add_subcommand("wide", "One job with many executors on each member");
  wide_command->add_option("--executors", wide.executors_each, "On each member")->check(CLI::Range(1, 1000))->capture_default_str();
  wide_command->add_option("--rounds", wide.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  wide_command->add_option("--delay-ms", delay_ms, "Before each answer of a member")->check(CLI::NonNegativeNumber)->capture_default_str();

  HungOptions hung;
  CLI::App* const hung_command = app.add_subcommand("hung", "One member of eight answers nothing");
  hung_command->add_option("--rounds", hung.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  hung_command->add_option("--jobs", hung.jobs, "In a round")->check(CLI::Range(1, 1000))->capture_default_str();
  double pause_ms = absl::ToDoubleMilliseconds(hung.pause);
  hung_command->add_option("--pause-ms", pause_ms, "Between two jobs")->check(CLI::NonNegativeNumber)->capture_default_str();

  FailoverOptions failover;
  CLI::App* const failover_command = app.add_subcommand("failover", "The leading operator ends");
  failover_command->add_option("--rounds", failover.rounds)->check(CLI::Range(1, 1000))->capture_default_str();

  SweepOptions sweep;
  CLI::App* const sweep_command = app.add_subcommand("crash-sweep", "The operator is killed after each of its writes");
  std::vector<std::string> names;
  for (const CrashScenario& scenario : CrashScenarios()) names.emplace_back(scenario.name);
  sweep_command->add_option("--scenario", sweep.scenario, "Of this scenario alone")->check(CLI::IsMember(names));
  sweep_command->add_option("--first", sweep.first, "Begin with this write")->check(CLI::Range(1, 10'000))->capture_default_str();
  sweep_command->add_option("--stride", sweep.stride, "Every so manieth write")->check(CLI::Range(1, 10'000))->capture_default_str();
  sweep_command->add_option("--max-writes", sweep.max_writes, "Writes of each scenario at most; 0: all")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();

  StartOptions start;
  CLI::App* const start_command = app.add_subcommand("start", "An operator that starts when many jobs are there");
  start_command->add_option("--jobs", start.jobs)->check(CLI::Range(0, 100'000))->capture_default_str();
  start_command->add_option("--executors", start.executors, "Of each job")->check(CLI::Range(1, 1000))->capture_default_str();
  start_command->add_option("--rounds", start.rounds)->check(CLI::Range(1, 1000))->capture_default_str();

  CLI11_PARSE(app, argc, argv);
  if (fleet_command->parsed()) {
    fleet.rest = absl::Seconds(rest_s);
    Fleet(fleet);
  } else if (wide_command->parsed()) {
    wide.delay = absl::Milliseconds(delay_ms);
    Wide(wide);
  } else if (hung_command->parsed()) {
    hung.pause = absl::Milliseconds(pause_ms);
    Hung(hung);
  } else if (failover_command->parsed()) {
    Failover(failover);
  } else if (start_command->parsed()) {
    Start(start);
  } else if (sweep_command->parsed()) {
    Sweep(sweep);
  }
  return 0;
}

}  // namespace
}  // namespace fusionllm::load

int main(int argc, char** argv) { return fusionllm::load::Main(argc, argv); }
