// fusionctl join ADDRESS --token TOKEN
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cli/commands/command.h"
#include "cli/join/enroll.h"
#include "cli/run/child_process.h"
#include "lib/base/status_macros.h"

namespace fusionllm::cli {
namespace {

struct Flags {
  std::string address, token, name, site, listen;
  double patience_s = 60;
  bool spare = false;
};

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "executor";
  return std::string(name).substr(0, std::string(name).find('.'));
}

absl::StatusOr<int> Join(const Flags& flags) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string bin, ProgramFolder());
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string here, LocalAddressTowards(flags.address));
  FUSIONLLM_ASSIGN_OR_RETURN(const Enrolled enrolled,
                             Enroll(flags.address, flags.token, flags.name.empty() ? HostName() : flags.name, flags.patience_s));
  std::string folder = (std::filesystem::temp_directory_path() / "fusionllm-join-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError(absl::StrCat("cannot make a folder for credentials: ", folder));
  const auto remove_folder = absl::MakeCleanup([&folder] {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  });
  FUSIONLLM_RETURN_IF_ERROR(security::WriteCredentials(folder, enrolled.name, enrolled.credentials));

  SignalWatch signals;
  const bool ipv6 = here.find(':') != std::string::npos;
  const std::string listen = flags.listen.empty() ? absl::StrCat(ipv6 ? "[" : "", here, ipv6 ? "]:0" : ":0") : flags.listen;
  ChildProcess::Options options;
  options.name = enrolled.name;
  // Without a topology a site is what is measured as one place: each machine of its own.
  options.argv = {bin + "/fusion-executor",
                  "--broker",
                  flags.address,
                  "--name",
                  enrolled.name,
                  "--tls",
                  folder,
                  "--listen",
                  listen,
                  "--site",
                  flags.site.empty() ? enrolled.name : flags.site};
  if (flags.spare) options.argv.push_back("--spare");
  options.log_path = "/dev/stderr";
  FUSIONLLM_ASSIGN_OR_RETURN(ChildProcess executor, ChildProcess::Start(options));
  absl::FPrintF(stderr, "joined %s as %s, process %d\n", flags.address, enrolled.name, executor.pid());
  while (!executor.Poll()) {
    pollfd fd = {signals.fd(), POLLIN, 0};
    poll(&fd, 1, -1);
    if (signals.Take()) executor.Signal(signals.stop_requests() == 1 ? SIGTERM : SIGKILL);
  }
  const ChildEnd end = *executor.Poll();
  if (signals.stop_requests() > 0) return kExitInterrupted;
  if (end.exit_code == 0) return kExitDone;
  absl::FPrintF(stderr, "fusionctl: the executor ended: %s\n", Describe(end));
  return kExitFailed;
}

}  // namespace

void AddJoin(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = app.add_subcommand("join", "Lend this machine to a run of another one (`fusionctl run --listen`)");
  command->add_option("ADDRESS", flags->address, "where the run listens, HOST:PORT")->required();
  command->add_option("--token", flags->token, "the token that `fusionctl run --listen` has printed")->required();
  command->add_option("--name", flags->name, "name of this device (default: this machine's)");
  command->add_option("--site", flags->site, "place of this device; links inside a place are taken to be fast (default: one of its own)");
  command->add_option("--listen", flags->listen, "address for other executors (default: the one that leads to the run)");
  command->add_option("--patience-seconds", flags->patience_s, "how long to wait for the run to answer")->check(CLI::PositiveNumber);
  command->add_flag("--spare", flags->spare, "stay in reserve until another device is lost");
  command->footer("Example:\n  fusionctl join 192.0.2.1:7000 --token fj1....");
  command->callback([flags, &action] {
    action = [flags] {
      const absl::StatusOr<int> code = Join(*flags);
      return code.ok() ? *code : Complain(code.status());
    };
  });
}

}  // namespace fusionllm::cli
