// fusionctl: what users run. Each command is a file in commands/.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "cli/commands/unexpected.h"
#include "lib/base/log.h"
#include "lib/base/thread_limit.h"
#include "lib/daemon/standard_fds.h"

namespace {

using fusionllm::cli::OutputFormat;

constexpr void (*kCommands[])(CLI::App&, const fusionllm::cli::Globals&, fusionllm::cli::Action&) = {
    fusionllm::cli::AddInit,
    fusionllm::cli::AddRun,
    fusionllm::cli::AddJoin,
    fusionllm::cli::AddDemo,
    fusionllm::cli::AddExplain,
    fusionllm::cli::AddPlan,
    fusionllm::cli::AddSimulate,
    fusionllm::cli::AddGraph,
    fusionllm::cli::AddCheckpoint,
    fusionllm::cli::AddEval,
    fusionllm::cli::AddBench,
    fusionllm::cli::AddDoctor,
    fusionllm::cli::AddClusterCommands,
    fusionllm::cli::AddKubernetesCommands,
    fusionllm::cli::AddCompletion,
};

// "--topology $T" with T unset must not train on something else.
void RefuseEmptyValues(CLI::App& app) {
  const CLI::Validator not_empty([](const std::string& value) { return value.empty() ? std::string("must not be empty") : std::string(); },
                                 "");
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() > 0) option->check(not_empty);
  }
  for (CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; })) RefuseEmptyValues(*command);
}

// `code`, unless what was printed could not be written.
int EndOfStdout(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  // Without an errno it was an earlier write that failed.
  if (errno != EPIPE)
    std::fprintf(stderr, "fusionctl: cannot write to stdout%s%s\n", errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno));
  return code == fusionllm::cli::kExitDone ? fusionllm::cli::kExitFailed : code;
}

// --help and --version arrive here too.
int EndOfParsing(const CLI::App& app, const CLI::ParseError& error) {
  const int code = app.exit(error) == 0 ? fusionllm::cli::kExitDone : fusionllm::cli::kExitBadInput;
  std::cout.flush();  // which is how CLI11 writes; stdio beneath it keeps the error
  return EndOfStdout(code);
}

int Main(int argc, char** argv) {
  CLI::App app("Train one deep network on machines that are joined by slow links.", "fusionctl");
  fusionllm::cli::Globals globals;
  fusionllm::cli::Action action;
  app.set_version_flag("--version", "fusionctl " FUSIONLLM_VERSION);
  app.add_option_function<std::string>(
         "--format",
         [&globals](const std::string& format) { globals.format = format == "json" ? OutputFormat::kJson : OutputFormat::kText; },
         "text for people, json for programs")
      ->check(fusionllm::cli::OneOf({"text", "json"}))
      ->option_text("text|json");
  app.add_option("--log-level", globals.log_level,
                 "how much fusionctl and what it starts log (default: fusionctl warning, the others info)")
      ->check(fusionllm::cli::OneOf({"debug", "info", "warning", "error"}))
      ->option_text("debug|info|warning|error");
  app.require_subcommand(1);
  app.failure_message(fusionllm::cli::UsageError);
  app.fallthrough();  // the options above may also follow the command
  for (const auto add : kCommands) add(app, globals, action);
  RefuseEmptyValues(app);
  try {
    std::vector<std::string> words = fusionllm::cli::WithCurrentOptionNames({argv + std::min(argc, 1), argv + argc});
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
  } catch (const CLI::RequiredError& error) {
    if (app.get_subcommands().empty() && !app.remaining().empty()) return fusionllm::cli::UnknownCommand(app);
    return EndOfParsing(app, error);
  } catch (const CLI::ExtrasError& error) {
    return app.remaining(/*recurse=*/true).empty() ? EndOfParsing(app, error) : fusionllm::cli::UnexpectedArguments(app);
  } catch (const CLI::ParseError& error) {
    return EndOfParsing(app, error);
  }
  fusionllm::base::StartLog("fusionctl",
                            fusionllm::base::ParseLogLevel(globals.log_level.value_or("")).value_or(fusionllm::base::LogLevel::kWarning));
  return EndOfStdout(action());
}

std::string WhatIsWrong(const std::system_error& error) {
  return fusionllm::base::IsThreadLimitError(error) ? fusionllm::base::ThreadLimitMessage("a thread") : error.what();
}

// Of a thread, whose exceptions are caught nowhere. Every other one is a mistake of ours: loudly.
[[noreturn]] void TellAndEnd() {
  try {
    if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
  } catch (const std::system_error& error) {
    if (fusionllm::base::IsThreadLimitError(error)) {
      std::fprintf(stderr, "fusionctl: %s\n", WhatIsWrong(error).c_str());
      std::_Exit(fusionllm::cli::kExitFailed);
    }
  } catch (...) {
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  fusionllm::daemon::ReserveStandardFds();
  fusionllm::daemon::FailWritesBeyondSizeLimit();
  std::set_terminate(TellAndEnd);
  try {
    return Main(argc, argv);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "fusionctl: %s\n", WhatIsWrong(error).c_str());
    return fusionllm::cli::kExitFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fusionctl: %s\n", error.what());
    return fusionllm::cli::kExitFailed;
  }
}
