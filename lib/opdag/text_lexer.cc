#include "lib/opdag/text_lexer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"

namespace fusionllm::opdag::text {
namespace {

bool IsNameByte(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-'; }
bool IsWordByte(char c) { return IsNameByte(c) || c == '+'; }  // 1e+20
bool IsMark(char c) { return absl::string_view("{}()[]=,;:@").find(c) != absl::string_view::npos; }

class Lexer {
 public:
  Lexer(absl::string_view text, absl::string_view file) : text_(text), file_(file) {}

  absl::StatusOr<std::vector<Token>> Run() {
    std::vector<Token> tokens;
    while (SkipBlanks()) {
      FUSIONLLM_ASSIGN_OR_RETURN(Token token, Next());
      if (token.text.size() > kMaxName)
        return ErrorAt(file_, token.position, absl::StrCat("a name or text of more than ", kMaxName, " bytes"));
      tokens.push_back(std::move(token));
    }
    tokens.push_back({TokenKind::kEnd, "end of text", position_});
    return tokens;
  }

 private:
  void Advance() {
    if (text_[at_++] == '\n') {
      ++position_.line;
      position_.column = 1;
    } else {
      ++position_.column;
    }
  }

  // False at the end of the text.
  bool SkipBlanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') Advance();
      } else if (absl::ascii_isspace(text_[at_])) {
        Advance();
      } else {
        return true;
      }
    }
    return false;
  }

  absl::StatusOr<Token> Next() {
    Token token;
    token.position = position_;
    const char first = text_[at_];
    if (first == '"') return String(token);
    if (IsMark(first)) {
      token.kind = TokenKind::kPunctuation;
      token.text = std::string(1, first);
      Advance();
      return token;
    }
    if (!IsWordByte(first)) {
      return ErrorAt(file_, position_, absl::StrCat("the character '", absl::CHexEscape(text_.substr(at_, 1)), "' means nothing here"));
    }
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordByte(text_[at_])) Advance();
    token.kind = TokenKind::kWord;
    token.text = std::string(text_.substr(begin, at_ - begin));
    return token;
  }

  absl::StatusOr<Token> String(Token token) {
    Advance();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) Advance();
      Advance();
    }
    if (at_ >= text_.size() || text_[at_] != '"') return ErrorAt(file_, token.position, "a text that has no closing quote");
    token.kind = TokenKind::kString;
    if (!absl::CUnescape(text_.substr(begin, at_ - begin), &token.text)) {
      return ErrorAt(file_, token.position, "a text with a broken escape");
    }
    Advance();
    return token;
  }

  absl::string_view text_;
  absl::string_view file_;
  size_t at_ = 0;
  Position position_;
};

}  // namespace

absl::Status ErrorAt(absl::string_view file, Position position, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(file, ":", position.line, ":", position.column, ": ", reason));
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view text, absl::string_view file) {
  if (text.size() > kMaxText) {
    return ErrorAt(file, {}, absl::StrCat("a graph of ", text.size(), " bytes passes the limit of ", kMaxText));
  }
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // the byte order mark that editors on Windows put in front
  return Lexer(text, file).Run();
}

bool IsPlainName(absl::string_view name) {
  if (name.empty() || name == "param" || name == "return") return false;
  for (const char c : name) {
    if (!IsNameByte(c)) return false;
  }
  return true;
}

}  // namespace fusionllm::opdag::text
