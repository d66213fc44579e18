// fusionctl: what users run. Each command is a file in commands/.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/job/field_hints.h"

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
    fusionllm::cli::AddCompletion,
};

constexpr const char* kGenerates[] = {"sample", "generate", "infer", "inference", "predict", "chat", "complete"};

int UnknownCommand(const CLI::App& app) {
  if (app.remaining().front().starts_with('-')) {
    std::fprintf(stderr, "fusionctl: no option '%s'; fusionctl --help lists them\n", app.remaining().front().c_str());
    return fusionllm::cli::kExitBadInput;
  }
  std::string listed;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
    listed += (listed.empty() ? "" : ", ") + names.back();
  }
  const std::string wanted = app.remaining().front();
  if (std::find(std::begin(kGenerates), std::end(kGenerates), wanted) != std::end(kGenerates)) {
    std::fprintf(
        stderr,
        "fusionctl: no command '%s': there is none yet that generates text; export the checkpoint of a GPT-2 (fusionctl checkpoint "
        "export CHECKPOINT FOLDER/) and use transformers on that folder (docs/checkpoints.md)\n",
        wanted.c_str());
    return fusionllm::cli::kExitBadInput;
  }
  const std::string near = fusionllm::base::NearestName(wanted, names);
  std::fprintf(stderr, "fusionctl: no command '%s'; %s%s%sthere are %s\n", app.remaining().front().c_str(),
               near.empty() ? "" : "did you mean ", near.c_str(), near.empty() ? "" : "? ", listed.c_str());
  return fusionllm::cli::kExitBadInput;
}

// What CLI11 lists last word first, and without a way out.
int UnexpectedArguments(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string words = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    words += " " + command->get_name();
  }
  std::string first = app.remaining(/*recurse=*/true).front();
  first.resize(std::min(first.find('='), first.size()));
  std::vector<std::string> options;
  for (const CLI::Option* const option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  if (std::find(options.begin(), options.end(), first) != options.end()) {
    std::fprintf(stderr, "%s: %s stands before the command that it belongs to; write it behind\n", words.c_str(), first.c_str());
  } else if (first.starts_with('-')) {
    const std::string near = fusionllm::base::NearestName(first, options);
    if (near.empty() && std::find(options.begin(), options.end(), "--set") != options.end()) {
      const std::string field = fusionllm::job::FusionJobHints().For("", first.substr(first.find_first_not_of('-')), {});
      if (!field.empty()) {
        std::fprintf(stderr, "%s: no option '%s'; fields of a job are set as in --set spec.training.steps=50: %s\n", words.c_str(),
                     first.c_str(), field.c_str());
        return fusionllm::cli::kExitBadInput;
      }
    }
    std::fprintf(stderr, "%s: no option '%s'%s%s; %s --help lists them\n", words.c_str(), first.c_str(),
                 near.empty() ? "" : "; did you mean ", near.c_str(), words.c_str());
  } else {
    std::fprintf(stderr, "%s: '%s' was not expected; %s --help says what is\n", words.c_str(), first.c_str(), words.c_str());
  }
  return fusionllm::cli::kExitBadInput;
}

// "--topology $T" with T unset must not train on something else.
void RefuseEmptyValues(CLI::App& app) {
  const CLI::Validator not_empty([](const std::string& value) { return value.empty() ? std::string("must not be empty") : std::string(); },
                                 "");
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() > 0) option->check(not_empty);
  }
  for (CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; })) RefuseEmptyValues(*command);
}

// A file that is opened later must not become stdin, stdout or stderr because those were closed: reads and writes there fail (EBADF).
void HoldStandardDescriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0) (void)open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);  // takes the lowest that is free
  }
}

// `code`, unless what was told could not be written.
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
  app.fallthrough();  // the options above may also follow the command
  for (const auto add : kCommands) add(app, globals, action);
  RefuseEmptyValues(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    if (app.get_subcommands().empty() && !app.remaining().empty()) return UnknownCommand(app);
    return EndOfParsing(app, error);
  } catch (const CLI::ExtrasError& error) {
    return app.remaining(/*recurse=*/true).empty() ? EndOfParsing(app, error) : UnexpectedArguments(app);
  } catch (const CLI::ParseError& error) {
    return EndOfParsing(app, error);
  }
  fusionllm::base::StartLog("fusionctl",
                            fusionllm::base::ParseLogLevel(globals.log_level.value_or("")).value_or(fusionllm::base::LogLevel::kWarning));
  return EndOfStdout(action());
}

}  // namespace

int main(int argc, char** argv) {
  HoldStandardDescriptors();
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fusionctl: %s\n", error.what());
    return fusionllm::cli::kExitFailed;
  }
}
