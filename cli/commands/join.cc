// fusionctl join ADDR
#include "cli/join/join_run.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "lib/base/host_port.h"
#include "lib/kernels/devices.h"

namespace fusionllm::cli {

namespace {

constexpr char kTokenVariable[] = "FUSIONLLM_JOIN_TOKEN";

// CLI11 ignores an empty variable, so its user would hear only that --token is missing.
absl::Status CheckToken(const std::string& token) {
  if (!absl::StripAsciiWhitespace(token).empty()) return absl::OkStatus();
  const char* const variable = std::getenv(kTokenVariable);
  return absl::InvalidArgumentError(absl::StrCat("no token: `fusionctl run --listen` printed one; give it by --token TOKEN or in ",
                                                 kTokenVariable,
                                                 variable == nullptr ? ", which is not set"
                                                 : *variable == '\0' ? ", which is empty"
                                                                     : ""));
}

}  // namespace

void AddJoin(CLI::App& app, const Globals& globals, Action& action) {
  struct Flags {
    JoinOptions options;
    std::string listen, advertise;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = app.add_subcommand("join", "Lend this machine to a run that another machine started with --listen");
  command->add_option("ADDR", flags->options.address, "where the run listens, HOST:PORT")->required();
  command->add_option("--token", flags->options.token, "what `fusionctl run --listen` printed; required")
      ->envname(kTokenVariable)
      ->check([](const std::string& text) { return std::string(CheckToken(text).message()); });
  command->add_option("--name", flags->options.name, "name of this machine in the run (default: the run chooses one)");
  command->add_option("--device", flags->options.device, "what computes: cpu, cuda:N, or auto, the first CUDA device if there is one")
      ->capture_default_str()
      ->check([](const std::string& text) { return std::string(kernels::CheckDeviceName(text).message()); });
  command->add_flag("--allow-nondeterminism", flags->options.allow_nondeterminism,
                    "on a GPU: the fastest algorithms by measurement, and fewer kernels; then bits differ from run to run and with the "
                    "number of stages");
  command->add_flag("--spare", flags->options.spare, "be a spare: no stage until another machine is lost");
  CLI::Option* const site =
      command->add_option("--site", flags->options.site, "site of this machine (default: one of its own)")->check(SiteName());
  command
      ->add_option("--site-checkpoints", flags->options.site_checkpoints,
                   "folder that the machines of the site share and that stays: their parts of checkpoints are kept there and not sent to "
                   "the run's machine")
      ->needs(site);
  command
      ->add_option("--data", flags->options.data,
                   "let the run read training data and graph files of this machine below DIR (default: it reads none)")
      ->option_text("DIR")
      ->check(CLI::ExistingDirectory);
  command
      ->add_option("--shared-folder", flags->options.shared_folder,
                   "let the run read and write checkpoints below DIR, a network file system that its machine has at the same path")
      ->option_text("DIR")
      ->check(CLI::ExistingDirectory);
  command->add_flag("--object-stores", flags->options.object_stores,
                    "let the run fetch training data from object stores with the credentials of this machine");
  CLI::Option* const listen =
      command->add_option("--listen", flags->listen,
                          "HOST:PORT of this machine that all others can dial; without it tensors travel by way of the run's machine");
  command
      ->add_option("--advertise", flags->advertise,
                   "HOST:PORT that the others dial instead, when it leads to --listen: a port that a router forwards, say")
      ->needs(listen)
      ->check([](const std::string& text) { return std::string(base::CheckDialable(text).message()); });
  command->footer("Example:\n  fusionctl join 203.0.113.7:7000 --token fj1.... --name lab-3");
  command->callback([flags, &globals, &action] {
    action = [flags, &globals] {
      flags->options.log_level = globals.log_level;
      if (const absl::Status token = CheckToken(flags->options.token); !token.ok()) return ReportError(token);
      if (!flags->listen.empty()) flags->options.listen = flags->listen;
      if (!flags->advertise.empty()) flags->options.advertise = flags->advertise;
      SignalWatch signals;
      const absl::StatusOr<int> code = JoinRun(flags->options, signals);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
