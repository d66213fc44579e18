#include "tests/tidy/bans.h"

#include <initializer_list>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/tidy/identifiers.h"

namespace fusionllm::tidy {
namespace {

bool IsHeader(absl::string_view path) { return absl::EndsWith(path, ".h"); }
bool IsCpp(absl::string_view path) { return IsHeader(path) || absl::EndsWith(path, ".cc"); }
// What helps tests included.
bool IsTest(absl::string_view path) {
  return absl::EndsWith(path, "_test.cc") || (IsCpp(path) && (absl::StartsWith(path, "tests/") || absl::StrContains(path, "/testing/")));
}
bool IsShipped(absl::string_view path) { return IsCpp(path) && !IsTest(path) && !absl::EndsWith(path, "_fuzz.cc"); }
bool IsLibrary(absl::string_view path) { return IsCpp(path) && absl::StartsWith(path, "lib/"); }
bool IsEndToEndScript(absl::string_view path) { return absl::StartsWith(path, "e2e/") && absl::EndsWith(path, ".sh"); }
bool IsAny(absl::string_view) { return true; }

bool IsWordCharacter(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The start of `needle` in `line` as a word of its own: no letter, digit or underscore touches an end of it that is one itself.
bool ContainsWord(absl::string_view line, absl::string_view needle) {
  for (size_t at = line.find(needle); at != absl::string_view::npos; at = line.find(needle, at + 1)) {
    const size_t end = at + needle.size();
    const bool starts = at == 0 || !IsWordCharacter(line[at - 1]) || !IsWordCharacter(needle.front());
    const bool ends = end == line.size() || !IsWordCharacter(line[end]) || !IsWordCharacter(needle.back());
    if (starts && ends) return true;
  }
  return false;
}

bool ContainsAny(absl::string_view line, std::initializer_list<absl::string_view> needles) {
  for (absl::string_view needle : needles) {
    if (ContainsWord(line, needle)) return true;
  }
  return false;
}

bool OpensNamespace(absl::string_view line) { return absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "using namespace "); }

bool Sleeps(absl::string_view line) { return ContainsAny(line, {"sleep_for", "sleep_until", "SleepFor", "usleep", "nanosleep", "sleep("}); }

bool UsesCRand(absl::string_view line) {
  return ContainsAny(line, {"std::rand(", "srand(", "rand()", "random()", "drand48(", "random_device"});
}

bool NamesPort(absl::string_view line) {
  for (absl::string_view host : {"localhost:", "127.0.0.1:", "0.0.0.0:", "[::]:", "[::1]:"}) {
    for (size_t at = line.find(host); at != absl::string_view::npos; at = line.find(host, at + 1)) {
      const size_t port = at + host.size();
      if (port < line.size() && line[port] >= '1' && line[port] <= '9') return true;
    }
  }
  return false;
}

bool IsUnfinished(absl::string_view line) { return ContainsAny(line, {"TODO", "FIXME", "XXX"}); }

bool IncludesIostream(absl::string_view line) {
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "#include") && absl::StrContains(line, "<iostream>");
}

bool NamesMachinePath(absl::string_view line) {
  for (absl::string_view root : {"/home/", "/root/"}) {
    for (size_t at = line.find(root); at != absl::string_view::npos; at = line.find(root, at + 1)) {
      // "frame/home/x" and "$HOME/home/x" name no machine; a path that starts there does.
      const char before = at == 0 ? ' ' : line[at - 1];
      if (!IsWordCharacter(before) && !absl::StrContains(".-}*/", absl::string_view(&before, 1))) return true;
    }
  }
  return false;
}

// What a condition makes of a command's words, `[ -z "$(command)" ]` say, it makes of a server that does not answer, too.
bool FailsOpen(absl::string_view line) {
  return absl::StrContains(line, "-z \"$(") || absl::StrContains(line, "-z $(") || absl::StrContains(line, ")\" != ");
}

bool ParsesJson(absl::string_view line) { return absl::StrContains(line, "json::parse("); }

// One that is handed a std::unique_lock<std::mutex> gets a base::UniqueLock.
bool NamesRawMutex(absl::string_view line) {
  line = line.substr(0, line.find("//"));
  if (absl::StrContains(line, "<std::mutex>")) return false;
  return ContainsAny(line, {"std::mutex", "std::shared_mutex", "std::recursive_mutex", "std::lock_guard", "std::scoped_lock"});
}

struct Ban {
  absl::string_view rule;
  bool (*applies)(absl::string_view path);
  bool (*breaks)(absl::string_view line);
  absl::string_view message;
};

constexpr Ban kBans[] = {
    {"using-namespace", IsHeader, OpensNamespace, "a header must not open a namespace for whoever includes it"},
    {"sleep", IsTest, Sleeps, "a test waits for a condition with a time limit, it does not sleep"},
    {"rand", IsCpp, UsesCRand, "use a generator with a seed that a failure can print (lib/base/philox.h)"},
    {"port", IsCpp, NamesPort, "ask for port 0 and read back the port that was given"},
    {"unfinished", IsAny, IsUnfinished, "finish it, or say what is left in docs/reference/known-limits.md"},
    {"iostream", IsLibrary, IncludesIostream, "libraries do not print; use <ostream> or <sstream> for formatting"},
    {"json", IsShipped, ParsesJson, "base::ParseJson has a limit of depth, without which text of others ends the process"},
    {"raw-mutex", IsShipped, NamesRawMutex, "base::Mutex and its locks (lib/base/mutex.h): what they guard is checked when it is compiled"},
    {"fail-open", IsEndToEndScript, FailsOpen, "a command that fails passes: use `empty COMMAND`, or assign what it says first"},
    {"machine-path", IsAny, NamesMachinePath, "a path that exists on one machine only"},
};

// What begins to take messages of gRPC.
bool TakesMessages(absl::string_view line) { return ContainsAny(line, {"BuildAndStart(", "CreateCustomChannel(", "CreateChannel("}); }

bool IsAllowed(absl::string_view line, absl::string_view rule) {
  return absl::StrContains(line, absl::StrCat("tidy-allow: ", rule, " because "));
}

// One look at a line is not enough for this one: what refuses is said in front of what begins.
void CheckCompressedMessages(absl::string_view path, const std::vector<absl::string_view>& lines, std::vector<Finding>& findings) {
  constexpr absl::string_view kRule = "compressed";
  bool refused = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::StrContains(lines[i], "RefuseCompressedMessages(")) refused = true;
    if (!TakesMessages(lines[i])) continue;
    if (!refused && !IsAllowed(lines[i], kRule)) {
      findings.push_back(
          {std::string(path), static_cast<int>(i + 1), std::string(kRule),
           "gRPC inflates a message before it looks at its size: call security::RefuseCompressedMessages for each server and "
           "each channel, in front of the line that makes it"});
    }
    refused = false;
  }
}

// The name of a mutex that the line declares, or nothing.
absl::string_view DeclaredMutex(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  absl::ConsumePrefix(&line, "static ");
  absl::ConsumePrefix(&line, "mutable ");
  if (!absl::ConsumePrefix(&line, "base::Mutex ")) return "";
  const size_t end = line.find(';');
  return end == absl::string_view::npos ? "" : line.substr(0, end);
}

// A mutex guards something in its file that says so, or has a comment on its line, or on the one before, for what it is held.
void CheckGuarded(const SourceFile& file, const std::vector<absl::string_view>& lines, std::vector<Finding>& findings) {
  constexpr absl::string_view kRule = "unguarded-mutex";
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::string_view name = DeclaredMutex(lines[i]);
    if (name.empty() || absl::StrContains(lines[i], "//")) continue;
    if (i > 0 && absl::StartsWith(absl::StripLeadingAsciiWhitespace(lines[i - 1]), "//")) continue;
    if (absl::StrContains(file.text, absl::StrCat("GUARDED_BY(", name, ")"))) continue;
    findings.push_back(
        {file.path, static_cast<int>(i + 1), std::string(kRule),
         absl::StrCat("ABSL_GUARDED_BY(", name, ") says what it guards; where that is no member, a comment says for what it is held")});
  }
}

// A word of this project alone, in the singular and in lower case, and what the field says.
struct PrivateWord {
  absl::string_view word;
  absl::string_view term;
};

constexpr PrivateWord kPrivateWords[] = {
    {"advisor", "hint cache"},
    {"anew", "again, restarted or re-planned"},
    {"attendance", "sessions of executors"},
    {"attendant", "monitor"},
    {"fate", "outcome"},
    {"letter", "chunk, or character of a text"},
    {"nobody", "the subject that is missing: no executor, no peer"},
    {"patience", "timeout"},
    {"poke", "enqueue"},
    {"pulse", "heartbeat"},
    {"seat", "rank"},
    {"story", "events"},
    {"stories", "events or scenarios"},
    {"told", "reported, sent or events"},
    {"whoever", "the subject: an executor, a user"},
    {"wish", "desired state"},
    {"wishes", "desired state"},
};

// Two words in a row that only this project says, likewise.
struct PrivatePair {
  absl::string_view first, second;
  absl::string_view term;
};

constexpr PrivatePair kPrivatePairs[] = {
    {"foreign", "word", "synonym"},
    {"matrix", "unit", "tensor cores"},
    {"processor", "use", "CPU usage"},
};

// Whether `part` of a name is `word` or its plural, with or without a capital.
bool IsWord(absl::string_view part, absl::string_view word) {
  if (part.empty() || absl::ascii_tolower(static_cast<unsigned char>(part[0])) != word[0]) return false;
  part.remove_prefix(1);
  word.remove_prefix(1);
  return part == word || absl::StripSuffix(part, "s") == word;
}

// Empty: `name` has no private word. NOBODY of a macro of others is none.
absl::string_view TermInsteadOf(absl::string_view name) {
  const std::vector<absl::string_view> parts = PartsOf(name);
  if (parts.size() > 1 && parts[0] == "k" && parts[1] == "Most") return "kMax..";
  if (parts.size() > 1 && parts[0] == "k" && parts[1] == "Least") return "kMin..";
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const PrivateWord& banned : kPrivateWords) {
      if (IsWord(parts[i], banned.word)) return banned.term;
    }
    for (const PrivatePair& banned : kPrivatePairs) {
      if (i + 1 < parts.size() && IsWord(parts[i], banned.first) && IsWord(parts[i + 1], banned.second)) return banned.term;
    }
  }
  return "";
}

void CheckNames(const SourceFile& file, const std::vector<absl::string_view>& lines, std::vector<Finding>& findings) {
  constexpr absl::string_view kRule = "private-word";
  for (const Identifier& identifier : IdentifiersOf(file.text)) {
    const absl::string_view term = TermInsteadOf(identifier.name);
    if (term.empty() || IsAllowed(lines[static_cast<size_t>(identifier.line) - 1], kRule)) continue;
    findings.push_back({file.path, identifier.line, std::string(kRule),
                        absl::StrCat(identifier.name, ": a name has the words that people of the field search for: ", term)});
  }
}

// Prose may be as long as its subject; generated and recorded data have their own formats.
bool HasLengthLimit(absl::string_view path) {
  return IsCpp(path) || absl::EndsWith(path, ".proto") || absl::EndsWith(path, ".cmake") || absl::EndsWith(path, ".sh") ||
         absl::EndsWith(path, "CMakeLists.txt") || absl::EndsWith(path, "Makefile");
}

}  // namespace

std::vector<Finding> CheckBans(const SourceFile& file) {
  std::vector<Finding> findings;
  std::vector<absl::string_view> lines = absl::StrSplit(file.text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();

  if (!absl::StartsWith(file.path, "tests/tidy/")) {
    if (IsCpp(file.path)) CheckNames(file, lines, findings);
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const Ban& ban : kBans) {
        if (ban.applies(file.path) && ban.breaks(lines[i]) && !IsAllowed(lines[i], ban.rule)) {
          findings.push_back({file.path, static_cast<int>(i + 1), std::string(ban.rule), std::string(ban.message)});
        }
      }
    }
  }
  if (IsShipped(file.path)) {
    CheckCompressedMessages(file.path, lines, findings);
    CheckGuarded(file, lines, findings);
  }
  if (IsHeader(file.path) && !absl::StrContains(absl::StrCat("\n", file.text), "\n#pragma once\n")) {
    findings.push_back({file.path, 0, "pragma-once", "the header has no #pragma once"});
  }
  if (HasLengthLimit(file.path) && lines.size() > kWarnLines) {
    const bool too_long = lines.size() > kMaxLines;
    findings.push_back({file.path, 0, "length", absl::StrCat(lines.size(), " lines; aim at ", kWarnLines, ", the limit is ", kMaxLines),
                        too_long ? Severity::kError : Severity::kWarning});
  }
  return findings;
}

}  // namespace fusionllm::tidy
