// What a graph's text says, before names are resolved. Private to lib/opdag.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"
#include "lib/opdag/text_lexer.h"

namespace fusionllm::opdag::text {

inline constexpr size_t kMaxList = 64;

struct Name {
  std::string text;
  Position position;
};

struct Reference {
  Name name;
  std::string output;  // after a colon; empty: what the name itself means
};

struct OpStatement {
  std::vector<Name> results;  // the first is the op's name
  Name type;
  std::vector<Reference> inputs;
  std::vector<Name> parameters;  // empty: default names
  Attributes attributes;
};

struct ParameterStatement {
  Name name;
  tensor::TensorType type;
  std::optional<Initializer> initializer;
  std::optional<bool> trainable;
};

struct GraphText {
  std::string name;
  std::vector<OpStatement> ops;
  std::vector<ParameterStatement> parameters;
  std::optional<Reference> loss;
};

absl::StatusOr<GraphText> ParseSyntax(absl::string_view text, absl::string_view file);

}  // namespace fusionllm::opdag::text
