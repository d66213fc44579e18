#include "lib/job/yaml_hints.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::job {
namespace {

struct YamlHint {
  const char* message;  // of yaml-cpp, its beginning
  const char* hint;
};

constexpr char kDoesNotFit[] =
    "this line does not fit what stands above it: is it indented otherwise, or is a blank missing after ':' in it or in the line above?";
constexpr char kOtherFirstCharacter[] = "a value that begins with @, `, % or * must be in quotes";

constexpr YamlHint kYamlHints[] = {
    {"end of map not found", kDoesNotFit},
    {"end of sequence not found", "this line does not fit the list above it: is it indented otherwise, or is its '- ' missing?"},
    {"illegal map value",
     "no ':' is expected here: is ':' missing in the line above, or the blank after it, or is this line indented otherwise? A value with "
     "': ' in it must be in quotes"},
    {"illegal block entry", "a list begins on a line of its own, each item with '- '; in one line it is [a, b]"},
    {"end of map flow not found", "a '{' in this line or above it has no '}', or a ',' is missing behind one of its fields"},
    {"end of sequence flow not found", "a '[' in this line or above it has no ']', or a ',' is missing behind one of its items"},
    {"illegal flow end", "a '}' or ']' without the '{' or '[' before it; a value that has one must be in quotes"},
    {"unknown token", kOtherFirstCharacter},
    {"the referenced anchor is not defined", kOtherFirstCharacter},
    {"alias not found", kOtherFirstCharacter},
    {"illegal character found while scanning alias", kOtherFirstCharacter},
    {"unknown escape character", "in double quotes '\\' begins an escape: write '\\\\', or use single quotes"},
    {"illegal EOF in scalar", "a quote is opened in this line or above it and not closed"},
};

}  // namespace

std::string ExplainYamlError(absl::string_view parser_message) {
  for (const YamlHint& known : kYamlHints) {
    if (absl::StartsWith(parser_message, known.message)) return absl::StrCat(known.hint, " (", parser_message, ")");
  }
  return std::string(parser_message);
}

}  // namespace fusionllm::job
