// A command of fusionctl: a file of this folder for each, and a row in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/run/run_job.h"

namespace fusionllm::cli {

// Options that come before or after any command.
struct Globals {
  OutputFormat format = OutputFormat::kText;
  std::optional<std::string> log_level;  // of fusionctl and all that it starts; absent: warning here, their default there
};

// What the chosen command does; its value is the exit code.
using Action = std::function<int()>;

// Each adds its command to `app` and, once that command is chosen, puts what it does into `action`. All three outlive the parse.
void AddInit(CLI::App& app, const Globals& globals, Action& action);
void AddRun(CLI::App& app, const Globals& globals, Action& action);
void AddJoin(CLI::App& app, const Globals& globals, Action& action);
void AddDemo(CLI::App& app, const Globals& globals, Action& action);
void AddExplain(CLI::App& app, const Globals& globals, Action& action);
void AddPlan(CLI::App& app, const Globals& globals, Action& action);
void AddSimulate(CLI::App& app, const Globals& globals, Action& action);
void AddGraph(CLI::App& app, const Globals& globals, Action& action);
void AddCheckpoint(CLI::App& app, const Globals& globals, Action& action);
void AddEval(CLI::App& app, const Globals& globals, Action& action);
void AddBench(CLI::App& app, const Globals& globals, Action& action);
void AddDoctor(CLI::App& app, const Globals& globals, Action& action);
void AddClusterCommands(CLI::App& app, const Globals& globals, Action& action);
void AddKubernetesCommands(CLI::App& app, const Globals& globals, Action& action);
void AddCompletion(CLI::App& app, const Globals& globals, Action& action);

// Tells an error on stderr as "fusionctl: SENTENCE" and gives its exit code.
int ReportError(const absl::Status& status);

}  // namespace fusionllm::cli
