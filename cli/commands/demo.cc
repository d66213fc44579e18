// fusionctl demo
#include "cli/run/demo.h"

#include <memory>

#include "absl/status/statusor.h"
#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "lib/daemon/program.h"

namespace fusionllm::cli {

void AddDemo(CLI::App& app, const Globals& globals, Action& action) {
  const auto options = std::make_shared<DemoOptions>();
  CLI::App* const command = app.add_subcommand("demo", "Train one small model three ways over emulated slow links, and compare");
  command->add_option("--steps", options->steps, "steps of each run (default: what examples/jobs/demo.yaml says)")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--seconds", options->seconds, "the first run ends then at the latest; the others make as many steps as it did")
      ->check(NumberAbove(0))
      ->check(CLI::Range(0.0, daemon::kMaxFlagSeconds));
  command->add_option("--output", options->output, "folder for all that the runs leave (default runs/demo-TIMESTAMP)");
  command->add_option("--source", options->source, "folder of the source code (default: found from where fusionctl is)");
  command->footer("Example:\n  fusionctl demo --steps 60 --output runs/demo");
  command->callback([options, &globals, &action] {
    action = [options, &globals] {
      options->format = globals.format;
      options->log_level = globals.log_level;
      SignalWatch signals;
      const absl::StatusOr<int> code = RunDemo(*options, signals);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
