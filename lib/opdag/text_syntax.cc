#include "lib/opdag/text_syntax.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"

namespace fusionllm::opdag::text {
namespace {

class Parser {
 public:
  Parser(std::vector<Token> tokens, absl::string_view file) : tokens_(std::move(tokens)), file_(file) {}

  absl::StatusOr<GraphText> Run() {
    GraphText graph;
    FUSIONLLM_RETURN_IF_ERROR(ExpectWord("graph"));
    if (Peek().kind != TokenKind::kString) return Unexpected("the graph's name in quotes");
    graph.name = Take().text;
    FUSIONLLM_RETURN_IF_ERROR(Expect("{"));
    while (!At("}")) FUSIONLLM_RETURN_IF_ERROR(Statement(graph));
    Take();
    if (Peek().kind != TokenKind::kEnd) return Unexpected("nothing after the graph");
    return graph;
  }

 private:
  const Token& Peek() const { return tokens_[at_]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool At(absl::string_view mark) const { return Peek().kind == TokenKind::kPunctuation && Peek().text == mark; }
  bool AtWord(absl::string_view word) const { return Peek().kind == TokenKind::kWord && Peek().text == word; }
  bool TakeIf(absl::string_view mark) {
    if (!At(mark)) return false;
    Take();
    return true;
  }

  absl::Status Unexpected(absl::string_view wanted) const {
    const Token& token = Peek();
    const std::string found = token.kind == TokenKind::kEnd ? "the text ends" : absl::StrCat("found '", token.text, "'");
    return ErrorAt(file_, token.position, absl::StrCat("expected ", wanted, ", ", found));
  }
  absl::Status Expect(absl::string_view mark) { return TakeIf(mark) ? absl::OkStatus() : Unexpected(absl::StrCat("'", mark, "'")); }
  absl::Status ExpectWord(absl::string_view word) {
    if (!AtWord(word)) return Unexpected(absl::StrCat("'", word, "'"));
    Take();
    return absl::OkStatus();
  }

  absl::StatusOr<Name> TakeName(absl::string_view wanted) {
    if (Peek().kind != TokenKind::kWord && Peek().kind != TokenKind::kString) return Unexpected(wanted);
    if (Peek().text.empty()) return ErrorAt(file_, Peek().position, "an empty name");
    const Token token = Take();
    return Name{token.text, token.position};
  }

  absl::StatusOr<Reference> TakeReference() {
    Reference reference;
    FUSIONLLM_ASSIGN_OR_RETURN(reference.name, TakeName("the name of a value"));
    if (TakeIf(":")) {
      FUSIONLLM_ASSIGN_OR_RETURN(const Name output, TakeName("the name of an output"));
      reference.output = output.text;
    }
    return reference;
  }

  absl::Status Statement(GraphText& graph) {
    if (AtWord("param")) return ParameterLine(graph);
    if (AtWord("return")) {
      if (graph.loss) return ErrorAt(file_, Peek().position, "a second 'return'");
      Take();
      FUSIONLLM_ASSIGN_OR_RETURN(graph.loss, TakeReference());
      return absl::OkStatus();
    }
    if (graph.ops.size() >= kMaxOps) return ErrorAt(file_, Peek().position, absl::StrCat("a graph holds at most ", kMaxOps, " ops"));
    return OpLine(graph);
  }

  absl::Status OpLine(GraphText& graph) {
    OpStatement op;
    do {
      FUSIONLLM_ASSIGN_OR_RETURN(Name name, TakeName("the name of an op, 'param', 'return' or '}'"));
      op.results.push_back(std::move(name));
      if (op.results.size() > kMaxList) return ErrorAt(file_, Peek().position, "too many results");
    } while (TakeIf(","));
    FUSIONLLM_RETURN_IF_ERROR(Expect("="));
    FUSIONLLM_ASSIGN_OR_RETURN(op.type, TakeName("an op type"));
    FUSIONLLM_RETURN_IF_ERROR(Expect("("));
    if (!At(")") && !At(";")) {
      do {
        FUSIONLLM_ASSIGN_OR_RETURN(Reference input, TakeReference());
        op.inputs.push_back(std::move(input));
        if (op.inputs.size() > kMaxList) return ErrorAt(file_, Peek().position, absl::StrCat("more than ", kMaxList, " inputs"));
      } while (TakeIf(","));
    }
    if (TakeIf(";")) {
      do {
        FUSIONLLM_RETURN_IF_ERROR(Expect("@"));
        FUSIONLLM_ASSIGN_OR_RETURN(Name parameter, TakeName("the name of a parameter"));
        op.parameters.push_back(std::move(parameter));
        if (op.parameters.size() > kMaxList) return ErrorAt(file_, Peek().position, absl::StrCat("more than ", kMaxList, " parameters"));
      } while (TakeIf(","));
    }
    if (At("=") && !op.inputs.empty()) return AttributeAmongInputs(op);
    FUSIONLLM_RETURN_IF_ERROR(Expect(")"));
    if (TakeIf("{")) FUSIONLLM_RETURN_IF_ERROR(AttributeList(op.attributes));
    graph.ops.push_back(std::move(op));
    return absl::OkStatus();
  }

  // "linear(x, bias=false)", as Python has it. At the '='.
  absl::Status AttributeAmongInputs(const OpStatement& op) const {
    const Name& attribute = op.inputs.back().name;
    const Token& value = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    const std::string written = value.kind == TokenKind::kWord     ? SmallIfPython(value.text)
                                : value.kind == TokenKind::kString ? absl::StrCat("\"", value.text, "\"")
                                                                   : "..";
    const std::string inputs = absl::StrJoin(op.inputs.begin(), op.inputs.end() - 1, ", ",
                                             [](std::string* out, const Reference& input) { absl::StrAppend(out, input.name.text); });
    return ErrorAt(file_, attribute.position,
                   absl::StrCat("attributes stand in braces behind the inputs: write ", op.type.text, "(", inputs, ") {", attribute.text,
                                "=", written, "}"));
  }

  // True and False of Python are true and false here.
  static std::string SmallIfPython(const std::string& word) {
    const std::string small = absl::AsciiStrToLower(word);
    return small == "true" || small == "false" ? small : word;
  }

  absl::Status AttributeList(Attributes& attributes) {
    if (TakeIf("}")) return absl::OkStatus();
    do {
      FUSIONLLM_ASSIGN_OR_RETURN(const Name name, TakeName("the name of an attribute"));
      if (attributes.Has(name.text)) return ErrorAt(file_, name.position, absl::StrCat("attribute '", name.text, "' is given twice"));
      if (attributes.values().size() >= kMaxList) return ErrorAt(file_, name.position, absl::StrCat("more than ", kMaxList, " attributes"));
      FUSIONLLM_RETURN_IF_ERROR(Expect("="));
      FUSIONLLM_ASSIGN_OR_RETURN(AttributeValue value, Value(name.text == "shape"));
      attributes.Set(name.text, std::move(value));
    } while (TakeIf(","));
    return Expect("}");
  }

  absl::StatusOr<AttributeValue> Value(bool is_shape) {
    if (Peek().kind == TokenKind::kString) return AttributeValue(Take().text);
    if (At("[")) {
      FUSIONLLM_ASSIGN_OR_RETURN(std::vector<int64_t> list, IntegerList(is_shape));
      return AttributeValue(std::move(list));
    }
    if (AtWord("true") || AtWord("false")) return AttributeValue(Take().text == "true");
    if (const std::string meant = SmallIfPython(Peek().text); Peek().kind == TokenKind::kWord && meant != Peek().text) {
      return ErrorAt(file_, Peek().position, absl::StrCat("found '", Peek().text, "'; write ", meant));
    }
    if (Peek().kind == TokenKind::kWord && Peek().text.find_first_of(".eE") == std::string::npos) {
      FUSIONLLM_ASSIGN_OR_RETURN(const int64_t integer, Integer());
      return AttributeValue(integer);
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const double number, Number());
    return AttributeValue(number);
  }

  absl::StatusOr<int64_t> Integer() {
    int64_t integer = 0;
    if (Peek().kind != TokenKind::kWord || !absl::SimpleAtoi(Peek().text, &integer)) {
      return Unexpected("a value: an integer, a number, true, false, a quoted text or a list of integers");
    }
    Take();
    return integer;
  }

  absl::StatusOr<double> Number() {
    double number = 0;
    if (Peek().kind != TokenKind::kWord || !absl::SimpleAtod(Peek().text, &number) || !std::isfinite(number)) return Unexpected("a number");
    Take();
    return number;
  }

  absl::StatusOr<std::vector<int64_t>> IntegerList(bool is_shape) {
    FUSIONLLM_RETURN_IF_ERROR(Expect("["));
    std::vector<int64_t> list;
    if (TakeIf("]")) return list;
    do {
      const Position position = Peek().position;
      if (list.size() >= kMaxList) return ErrorAt(file_, position, absl::StrCat("a list of more than ", kMaxList, " entries"));
      if (is_shape && AtWord("b")) {
        Take();
        list.push_back(kBatch);
        continue;
      }
      FUSIONLLM_ASSIGN_OR_RETURN(const int64_t integer, Integer());
      if (is_shape && integer < -1)
        return ErrorAt(file_, position, absl::StrCat("an extent of ", integer, "; the micro-batch is written b"));
      list.push_back(integer);
    } while (TakeIf(","));
    FUSIONLLM_RETURN_IF_ERROR(Expect("]"));
    return list;
  }

  absl::Status ParameterLine(GraphText& graph) {
    Take();
    ParameterStatement parameter;
    FUSIONLLM_RETURN_IF_ERROR(Expect("@"));
    FUSIONLLM_ASSIGN_OR_RETURN(parameter.name, TakeName("the name of a parameter"));
    FUSIONLLM_ASSIGN_OR_RETURN(const Name dtype, TakeName("an element type, as in f32[2, 3]"));
    const absl::StatusOr<tensor::DType> parsed = tensor::ParseDType(dtype.text);
    if (!parsed.ok()) return ErrorAt(file_, dtype.position, parsed.status().message());
    FUSIONLLM_ASSIGN_OR_RETURN(std::vector<int64_t> extents, IntegerList(false));
    parameter.type = {*parsed, tensor::Shape(std::move(extents))};
    FUSIONLLM_ASSIGN_OR_RETURN(parameter.initializer, Start());
    if ((AtWord("frozen") || AtWord("trainable")) && !AtResult()) parameter.trainable = Take().text == "trainable";
    graph.parameters.push_back(std::move(parameter));
    return absl::OkStatus();
  }

  // Whether a statement "name = .." or "name, .. = .." begins here: no word is reserved for the ends of a param line.
  bool AtResult() const {
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    return next.kind == TokenKind::kPunctuation && (next.text == "=" || next.text == ",");
  }

  // zeros | ones | normal(s) | uniform(w), if one of them follows and is no op of that name.
  absl::StatusOr<std::optional<Initializer>> Start() {
    using Kind = Initializer::Kind;
    if (Peek().kind != TokenKind::kWord || AtResult()) return std::optional<Initializer>();
    Initializer start;
    if (AtWord("zeros") || AtWord("ones")) {
      start.kind = Take().text == "ones" ? Kind::kOnes : Kind::kZeros;
      return std::optional<Initializer>(start);
    }
    if (!AtWord("normal") && !AtWord("uniform")) return std::optional<Initializer>();
    start.kind = Take().text == "normal" ? Kind::kNormal : Kind::kUniform;
    FUSIONLLM_RETURN_IF_ERROR(Expect("("));
    const Position position = Peek().position;
    FUSIONLLM_ASSIGN_OR_RETURN(start.scale, Number());
    if (start.scale < 0) return ErrorAt(file_, position, "a negative width");
    FUSIONLLM_RETURN_IF_ERROR(Expect(")"));
    return std::optional<Initializer>(start);
  }

  std::vector<Token> tokens_;
  absl::string_view file_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<GraphText> ParseSyntax(absl::string_view text, absl::string_view file) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(text, file));
  return Parser(std::move(tokens), file).Run();
}

}  // namespace fusionllm::opdag::text
