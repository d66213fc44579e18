#include "lib/opdag/op_position.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/opdag/text_syntax.h"

namespace fusionllm::opdag {

std::string PositionOfOp(absl::string_view text, absl::string_view op) {
  const absl::StatusOr<text::GraphText> graph = text::ParseSyntax(text, "");
  if (!graph.ok()) return "";
  for (const text::OpStatement& statement : graph->ops) {
    const text::Name& name = statement.results[0];
    if (name.text == op) return absl::StrCat(name.position.line, ":", name.position.column);
  }
  return "";
}

}  // namespace fusionllm::opdag
