// fusionctl completion bash|zsh|fish
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"

namespace fusionllm::cli {
namespace {

struct Flag {
  std::vector<std::string> names;  // with their dashes
  bool takes_value = false;
  std::vector<std::string> values;  // none: a file, or anything
};

// A command's path ("checkpoint ls"; empty: fusionctl itself) with what may follow it.
struct Choices {
  std::string description;
  std::vector<std::string> commands, arguments;
  std::vector<Flag> flags;
};

void Collect(CLI::App& app, const std::string& path, std::map<std::string, Choices>& all) {
  Choices& choices = all[path];
  choices.description = app.get_description();
  for (CLI::App* const sub : app.get_subcommands([](CLI::App*) { return true; })) {
    choices.commands.push_back(sub->get_name());
    Collect(*sub, path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name()), all);
  }
  for (CLI::Option* const option : app.get_options()) {
    const std::vector<std::string> values = WordsOf(*option);
    if (option->get_lnames().empty()) {
      choices.arguments.insert(choices.arguments.end(), values.begin(), values.end());
      continue;
    }
    Flag flag{.takes_value = option->get_items_expected_max() > 0, .values = values};
    for (const std::string& name : option->get_lnames()) flag.names.push_back(absl::StrCat("--", name));
    for (const std::string& name : option->get_snames()) flag.names.push_back(absl::StrCat("-", name));
    choices.flags.push_back(std::move(flag));
  }
}

// What may follow a command: fusionctl's own options may, too.
std::vector<std::string> WordsAfter(const Choices& choices, const Choices& global) {
  std::vector<std::string> words = choices.commands;
  words.insert(words.end(), choices.arguments.begin(), choices.arguments.end());
  const auto add = [&words](const std::string& name) {
    if (name.substr(0, 2) == "--" && std::find(words.begin(), words.end(), name) == words.end()) words.push_back(name);
  };
  for (const Choices* from : {&choices, &global}) {
    for (const Flag& flag : from->flags) std::for_each(flag.names.begin(), flag.names.end(), add);
  }
  return words;
}

// Lines of a case statement that has "COMMAND:OPTION" and tells the words for the option's value.
std::string ValueCases(const std::string& path, const Choices& choices) {
  std::string cases;
  for (const Flag& flag : choices.flags) {
    if (!flag.takes_value) continue;
    const std::string any = path.empty() ? "*:" : absl::StrCat("'", path, ":'");
    std::vector<std::string> patterns;
    for (const std::string& name : flag.names) patterns.push_back(absl::StrCat(any, name));
    absl::StrAppend(&cases, "    ", absl::StrJoin(patterns, " | "), ") words='", absl::StrJoin(flag.values, " "), "' ;;\n");
  }
  return cases;
}

// Both shells run the same function: zsh through its emulation of bash's completion. Where no word fits, they complete file names.
std::string BashScript(const std::map<std::string, Choices>& all) {
  const Choices& global = all.at("");
  std::string known, cases, values;
  for (const auto& [path, choices] : all) {
    absl::StrAppend(&known, path.empty() ? "" : absl::StrCat("|", path));
    absl::StrAppend(&cases, "    '", path, "') words='", absl::StrJoin(WordsAfter(choices, global), " "), "' ;;\n");
    if (!path.empty()) absl::StrAppend(&values, ValueCases(path, choices));
  }
  return absl::StrCat(
      "_fusionctl() {\n"
      "  local path='' word words='' current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\" i\n"
      "  if [[ \"$current\" == '=' ]]; then\n"  // bash makes three words of --format=json
      "    current=''\n"
      "  elif [[ \"$previous\" == '=' ]]; then\n"
      "    previous=\"${COMP_WORDS[COMP_CWORD-2]}\"\n"
      "  fi\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=\"${path:+$path }${COMP_WORDS[i]}\"\n"
      "    case \"",
      known, "|\" in *\"|$word|\"*) path=\"$word\" ;; esac\n",
      "  done\n"
      "  case \"$path\" in\n",
      cases,
      "  esac\n"
      "  case \"$path:$previous\" in\n",
      values, ValueCases("", global),
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}\n"
      "complete -o default -F _fusionctl fusionctl\n");
}

// An option in the words of fish's `complete`.
std::string FishFlag(const Flag& flag) {
  std::string text;
  for (const std::string& name : flag.names) {
    const bool is_long = name.substr(0, 2) == "--";
    absl::StrAppend(&text, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
  }
  if (!flag.values.empty()) return absl::StrCat(text, " -x -a '", absl::StrJoin(flag.values, " "), "'\n");
  return absl::StrCat(text, flag.takes_value ? " -r" : "", "\n");
}

std::string FishScript(const std::map<std::string, Choices>& all) {
  std::string script;
  for (const Flag& flag : all.at("").flags) absl::StrAppend(&script, "complete -c fusionctl", FishFlag(flag));
  for (const auto& [path, choices] : all) {
    if (path.empty()) continue;
    const size_t space = path.rfind(' ');
    const std::string name = space == std::string::npos ? path : path.substr(space + 1);
    const std::string when =
        space == std::string::npos ? "__fish_use_subcommand" : absl::StrCat("__fish_seen_subcommand_from ", path.substr(0, space));
    const std::string text = absl::StrReplaceAll(choices.description, {{"\\", "\\\\"}, {"'", "\\'"}});
    absl::StrAppend(&script, "complete -c fusionctl -n '", when, "' -a ", name, " -d '", text, "'\n");
    const std::string here = absl::StrCat("complete -c fusionctl -n '__fish_seen_subcommand_from ", name, "'");
    for (const Flag& flag : choices.flags) absl::StrAppend(&script, here, FishFlag(flag));
    if (!choices.arguments.empty()) absl::StrAppend(&script, here, " -a '", absl::StrJoin(choices.arguments, " "), "'\n");
  }
  return script;
}

}  // namespace

void AddCompletion(CLI::App& app, const Globals&, Action& action) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* const command = app.add_subcommand("completion", "Print a script that completes fusionctl's words in a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(OneOf({"bash", "zsh", "fish"}));
  command->footer("Example:\n  source <(fusionctl completion bash)");
  command->callback([shell, &app, &action] {
    action = [shell, &app] {
      std::map<std::string, Choices> all;
      Collect(app, "", all);
      if (*shell == "zsh") absl::PrintF("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n");
      absl::PrintF("%s", *shell == "fish" ? FishScript(all) : BashScript(all));
      return kExitDone;
    };
  });
}

}  // namespace fusionllm::cli
