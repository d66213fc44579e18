#include "cli/commands/unexpected.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "lib/base/nearest_name.h"
#include "lib/job/field_hints.h"

namespace fusionllm::cli {
namespace {

// What other programs call a command.
struct CommandWord {
  const char *word, *meant;
};
constexpr CommandWord kCommandWords[] = {
    {"train", "run"},
    {"fit", "run"},
    {"start", "run"},
    {"launch", "run"},
    {"resume", "run"},
    {"finetune", "run"},
    {"pretrain", "run"},
    {"evaluate", "eval"},
    {"test", "eval"},
    {"export", "checkpoint export"},
    {"convert", "checkpoint export"},
    {"benchmark", "bench"},
    {"calibrate", "bench --calibrate"},
    {"validate", "run --dry-run"},
    {"check", "run --dry-run"},
    {"new", "init"},
    {"create", "init"},
    {"worker", "join"},
    {"connect", "join"},
    {"info", "doctor"},
    {"env", "doctor"},
    {"draw", "graph"},
    {"describe", "explain"},
};

// Of options that were renamed in this release.
struct FormerOption {
  const char *before, *now;
  std::vector<absl::string_view> commands;  // that have it
};
std::vector<FormerOption> FormerOptions() {
  return {{"--fastest", "--allow-nondeterminism", {"run", "join"}},
          {"--gather-seconds", "--join-timeout-seconds", {"run"}},
          {"--least-gain", "--min-improvement", {"plan"}}};
}

constexpr const char* kCompares[] = {"compare", "diff", "plot"};
constexpr const char* kGenerates[] = {"sample", "generate", "infer", "inference", "predict", "chat", "complete"};

// Options that people bring along from other programs, with what takes their place.
struct OptionWord {
  const char *command, *option, *instead;
};
constexpr char kGoesOn[] = "a run goes on from its last checkpoint when it is started again with the same --output FOLDER";
constexpr OptionWord kOptionWords[] = {
    {"run", "resume", kGoesOn},
    {"run", "resumefromcheckpoint", kGoesOn},
    {"run", "continue", kGoesOn},
    {"run", "restore", kGoesOn},
    {"run", "logfile", "messages go to stderr: 2> run.log keeps it, and events.jsonl in the run's folder has every step"},
    {"run", "config", "the job's file is written without an option: fusionctl run job.yaml"},
    {"run", "job", "the job's file is written without an option: fusionctl run job.yaml"},
};

std::string InsteadOf(const std::string& command, const std::string& option) {
  for (const OptionWord& word : kOptionWords) {
    if (command == word.command && base::NormalizeName(option) == word.option) return word.instead;
  }
  return "";
}

// "--set a=1 b=2": every field wants its --set.
std::string SetEach(const CLI::App& command, const std::vector<std::string>& extra) {
  std::string text = "write --set before each:";
  for (const std::string& setting : command.get_option("--set")->results()) absl::StrAppend(&text, " --set ", setting);
  for (const std::string& word : extra) {
    if (LooksLikeSetting(word)) absl::StrAppend(&text, " --set ", word);
  }
  return text;
}

// The command that a parsed line has come to, and the words that lead there: "fusionctl checkpoint export".
struct CommandFound {
  const CLI::App* command;
  std::string words;
};
CommandFound CommandOf(const CLI::App& app) {
  CommandFound found{&app, app.get_name()};
  while (!found.command->get_subcommands().empty()) {
    found.command = found.command->get_subcommands().front();
    absl::StrAppend(&found.words, " ", found.command->get_name());
  }
  return found;
}

}  // namespace

int UnknownCommand(const CLI::App& app) {
  if (app.remaining().front().starts_with('-')) {
    std::fprintf(stderr, "fusionctl: no option '%s'; fusionctl --help lists them\n", app.remaining().front().c_str());
    return kExitBadInput;
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
        "export CHECKPOINT FOLDER/) and use transformers on that folder (docs/tasks/export-a-model.md)\n",
        wanted.c_str());
    return kExitBadInput;
  }
  if (std::find(std::begin(kCompares), std::end(kCompares), wanted) != std::end(kCompares)) {
    std::fprintf(
        stderr,
        "fusionctl: no command '%s': runs are compared by the events.jsonl and job.yaml of their folders (docs/reference/events.md has the "
        "lines of Python for a plot)\n",
        wanted.c_str());
    return kExitBadInput;
  }
  const auto* const word = std::find_if(std::begin(kCommandWords), std::end(kCommandWords), [&](const CommandWord& known) {
    return base::NormalizeName(wanted) == base::NormalizeName(known.word);
  });
  const std::string near = word != std::end(kCommandWords) ? word->meant : base::NearestName(wanted, names);
  std::fprintf(stderr, "fusionctl: no command '%s'; %s%s%sthere are %s\n", app.remaining().front().c_str(),
               near.empty() ? "" : "did you mean ", near.c_str(), near.empty() ? "" : "? ", listed.c_str());
  return kExitBadInput;
}

std::string UsageError(const CLI::App* app, const CLI::Error& error) {
  const std::string words = CommandOf(*app).words;
  return absl::StrCat(words, ": ", error.what(), "; see ", words, " --help\n");
}

int UnexpectedArguments(const CLI::App& app) {
  const auto [command, words] = CommandOf(app);
  const std::string whole = app.remaining(/*recurse=*/true).front();
  const std::string first = whole.starts_with('-') ? whole.substr(0, whole.find('=')) : whole;
  std::vector<std::string> options;
  for (const CLI::Option* const option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  if (std::find(options.begin(), options.end(), first) != options.end()) {
    std::fprintf(stderr, "%s: %s stands before the command that it belongs to; write it behind\n", words.c_str(), first.c_str());
  } else if (const std::string instead = InsteadOf(command->get_name(), first); first.starts_with('-') && !instead.empty()) {
    std::fprintf(stderr, "%s: no option '%s': %s\n", words.c_str(), first.c_str(), instead.c_str());
  } else if (first.starts_with('-')) {
    const std::string near = base::NearestName(first, options);
    const size_t word = first.find_first_not_of('-');
    if (near.empty() && word != std::string::npos && std::find(options.begin(), options.end(), "--set") != options.end()) {
      const std::string field = job::FusionJobHints().For("", first.substr(word), {});
      if (!field.empty()) {
        std::fprintf(stderr, "%s: no option '%s'; fields of a job are set as in --set spec.training.steps=50: %s\n", words.c_str(),
                     first.c_str(), field.c_str());
        return kExitBadInput;
      }
    }
    std::fprintf(stderr, "%s: no option '%s'%s%s; %s --help lists them\n", words.c_str(), first.c_str(),
                 near.empty() ? "" : "; did you mean ", near.c_str(), words.c_str());
  } else if (LooksLikeSetting(first) && std::find(options.begin(), options.end(), "--set") != options.end()) {
    std::fprintf(stderr, "%s: '%s' was not expected: %s\n", words.c_str(), first.c_str(),
                 SetEach(*command, app.remaining(/*recurse=*/true)).c_str());
  } else {
    std::fprintf(stderr, "%s: '%s' was not expected; %s --help says what is\n", words.c_str(), first.c_str(), words.c_str());
  }
  return kExitBadInput;
}

std::vector<std::string> WithCurrentOptionNames(std::vector<std::string> words) {
  // fusionctl's own options, each with a value, may stand before the command.
  size_t first = 0;
  while (first < words.size() && absl::StartsWith(words[first], "-")) first += absl::StrContains(words[first], '=') ? 1 : 2;
  if (first >= words.size()) return words;
  const std::string command = words[first];
  for (std::string& word : words) {
    if (word == "--") break;
    const std::string name = word.substr(0, word.find('='));
    for (const FormerOption& option : FormerOptions()) {
      const bool has_it = std::find(option.commands.begin(), option.commands.end(), command) != option.commands.end();
      if (name != option.before || !has_it) continue;
      std::fprintf(stderr, "fusionctl: warning: %s is called %s now; the former name is read in this release only\n", option.before,
                   option.now);
      word = absl::StrCat(option.now, word.substr(name.size()));
      break;
    }
  }
  return words;
}

}  // namespace fusionllm::cli
