#include "lib/job/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/file_format.h"
#include "lib/base/yaml_scalar.h"
#include "lib/job/scalar.h"
#include "lib/job/yaml_hints.h"

namespace fusionllm::job {
namespace {

// Thrown inside yaml-cpp's callbacks and caught in ParseYaml: the parser has no other way to be stopped.
struct Refused {
  int line;
  std::string why;
};

std::string WhyInvisible(absl::string_view character) {
  return absl::StrCat("the character ", CharacterName(character),
                      ", which is no space to YAML and cannot be seen: take it out, or put the text in quotes");
}

// Builds the tree from parser events. yaml-cpp's own node graph is not used: it shares aliased nodes, keeps duplicate keys silently, and
// its memory for hostile input is not ours to bound.
class TreeBuilder : public YAML::EventHandler {
 public:
  // `text` is what the parser reads, for the lines of what it tells of too coarsely.
  TreeBuilder(absl::string_view text, Node& root, const DocumentLimits& limits) : text_(text), root_(root), max_values_(limits.values) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Place(MakeNode(mark, Node::Kind::kNull), anchor); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    Node node = MakeNode(mark, Node::Kind::kScalar);
    node.text = base::FixYamlEscapes(value);
    node.quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!node.quoted) {
      CheckTag(mark, tag);
      CheckSeen(mark, value);
    }
    Place(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) throw Refused{Line(mark), "an alias must not stand inside what it refers to"};
    Count(Line(mark), found->second.second);
    if (open_.size() + static_cast<size_t>(DepthOf(found->second.first)) > kMaxDocumentDepth) TooDeep(mark);
    Node copy = found->second.first;
    copy.line = Line(mark);
    Place(std::move(copy), 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct OpenNode {
    Node node;
    YAML::anchor_t anchor = 0;
    size_t first_value = 0;        // count of values when it was opened
    std::optional<Node> key = {};  // of a map: read, its value is still to come
    bool has_merge = false;
    std::unordered_map<std::string, size_t> merged = {};  // keys that << brought, and where their values are
  };

  static int Line(const YAML::Mark& mark) { return std::max(mark.line, 0) + 1; }
  [[noreturn]] static void TooDeep(const YAML::Mark& mark) {
    throw Refused{Line(mark), absl::StrCat("nested more than ", kMaxDocumentDepth, " levels deep")};
  }

  static int DepthOf(const Node& node) {
    int depth = 0;
    for (const Node& item : node.items) depth = std::max(depth, DepthOf(item));
    return depth + 1;
  }

  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") throw Refused{Line(mark), "YAML tags other than !!str are not supported"};
  }

  // Of a word without quotes. To YAML such a character is a letter, and no space.
  void CheckSeen(const YAML::Mark& mark, const std::string& value) const {
    const InvisibleCharacter invisible = FirstInvisible(value);
    if (invisible.text.empty()) return;
    // A word may go over several lines.
    const size_t begin = std::min(static_cast<size_t>(std::max(mark.pos, 0)), text_.size());
    const size_t at = std::min(text_.find(invisible.text, begin), text_.size());
    const auto lines = std::count(text_.begin() + static_cast<ptrdiff_t>(begin), text_.begin() + static_cast<ptrdiff_t>(at), '\n');
    throw Refused{Line(mark) + static_cast<int>(lines), WhyInvisible(invisible.text)};
  }

  void Count(int line, size_t values) {
    values_ += values;
    if (values_ > max_values_) {
      throw Refused{line, absl::StrCat("the document has more than ", max_values_, " values (aliases are counted expanded)")};
    }
  }

  Node MakeNode(const YAML::Mark& mark, Node::Kind kind) {
    Count(Line(mark), 1);
    Node node;
    node.kind = kind;
    node.line = Line(mark);
    return node;
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    CheckTag(mark, tag);
    if (open_.size() >= static_cast<size_t>(kMaxDocumentDepth)) TooDeep(mark);
    const size_t first = values_;
    open_.push_back({.node = MakeNode(mark, kind), .anchor = anchor, .first_value = first});
  }

  void Close() {
    OpenNode done = std::move(open_.back());
    open_.pop_back();
    if (done.anchor != 0) {
      const size_t values = values_ - done.first_value;
      Count(done.node.line, values);  // the copy kept for aliases costs memory too
      anchored_[done.anchor] = {done.node, values};
    }
    Place(std::move(done.node), 0);
  }

  // A number or word of YAML as a key is the text of its value, as kubectl makes it.
  static std::string KeyText(const Node& key) {
    if (key.quoted) return key.text;
    const base::YamlScalar scalar = base::ResolveYamlScalar(key.text);
    if (scalar.type == base::YamlScalar::Type::kFloat || scalar.type == base::YamlScalar::Type::kNotFinite) {
      throw Refused{key.line, absl::StrCat("the key ", key.text, " is a number: put it in quotes")};
    }
    return scalar.text;
  }

  // What is written in the map itself goes before, and in a list of maps what stands first. Behind a key that it brings again
  // a merge would count to kubectl, against YAML's rules.
  static void Merge(OpenNode& map, Node value, int line) {
    constexpr char kTakes[] = "<< takes a mapping, or a list of mappings";
    if (map.has_merge) throw Refused{line, "duplicate key <<: to merge several mappings give it a list of them"};
    map.has_merge = true;
    std::vector<Node> maps;
    if (value.kind == Node::Kind::kList) {
      maps = std::move(value.items);
    } else {
      maps.push_back(std::move(value));
    }
    std::unordered_map<std::string, int> own;
    for (size_t i = 0; i < map.node.keys.size(); ++i) own.emplace(map.node.keys[i], map.node.items[i].line);
    for (Node& from : maps) {
      if (from.kind != Node::Kind::kMap) throw Refused{line, kTakes};
      for (size_t i = 0; i < from.keys.size(); ++i) {
        if (const auto before = own.find(from.keys[i]); before != own.end()) {
          throw Refused{line, absl::StrCat("<< brings the key ", Quoted(from.keys[i]), " again, which stands before it on line ",
                                           before->second, ": readers of YAML differ in which of the two counts; put << first")};
        }
        if (!map.merged.emplace(from.keys[i], map.node.items.size()).second) continue;
        map.node.keys.push_back(std::move(from.keys[i]));
        map.node.items.push_back(std::move(from.items[i]));
      }
    }
  }

  static std::string Quoted(const std::string& text) {
    Node node;
    node.kind = Node::Kind::kScalar;
    node.quoted = true;
    node.text = text;
    return Describe(node);
  }

  void Place(Node node, YAML::anchor_t anchor) {
    if (anchor != 0) anchored_[anchor] = {node, 1};
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == Node::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      if (node.kind != Node::Kind::kScalar) throw Refused{node.line, "a key must be text"};
      parent.key = std::move(node);
    } else {
      const Node key = *std::exchange(parent.key, std::nullopt);
      if (!key.quoted && key.text == "<<") return Merge(parent, std::move(node), key.line);
      node.line = key.line;
      std::string text = KeyText(key);
      if (const auto merged = parent.merged.find(text); merged != parent.merged.end()) {
        parent.node.items[merged->second] = std::move(node);
        parent.merged.erase(merged);
        return;
      }
      parent.node.keys.push_back(std::move(text));
      parent.node.items.push_back(std::move(node));
    }
  }

  const absl::string_view text_;
  Node& root_;
  const size_t max_values_;
  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, std::pair<Node, size_t>> anchored_;  // complete anchored nodes and how many values they hold
  size_t values_ = 0;
};

// Refuses what must not reach the parser: it takes byte 4 for the end of the text and replaces malformed UTF-8 silently.
std::optional<Refused> CheckText(absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return Refused{1, absl::StrCat("the document has ", text.size(), " bytes, more than the limit of ", max_bytes)};
  }
  const base::FileFormat* const format = base::FormatOf(text.substr(0, base::kFormatPrefixBytes), static_cast<int64_t>(text.size()));
  if (format != nullptr && format->kind == base::FileFormat::Kind::kText) {
    return Refused{1, absl::StrCat("it is ", format->name, ": save it as UTF-8")};
  }
  // Without a mark at its front.
  if (text.size() >= 2 && (text[0] == 0) != (text[1] == 0)) return Refused{1, "it looks like UTF-16: save it as UTF-8"};
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '\n') ++line;
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F) {
      return Refused{line, absl::StrCat("control character ", static_cast<int>(c), " at byte ", i)};
    }
    const size_t length = Utf8SequenceLength(text.substr(i));
    if (length == 0) return Refused{line, absl::StrCat("not UTF-8 at byte ", i)};
    const absl::string_view character = text.substr(i, length);
    if (const int rune = UnprintableCharacter(character); rune != 0 && !(rune == 0xFEFF && i == 0)) {
      return Refused{line, absl::StrCat("the character ", CharacterName(character), " at byte ", i,
                                        ", which readers of YAML take differently, or not at all")};
    }
    i += length;
  }
  return std::nullopt;
}

// yaml-cpp's words for a tab that indents depend on where it stands.
bool IsIndentedByATab(absl::string_view line) { return absl::StrContains(line.substr(0, line.find_first_not_of(" \t")), '\t'); }

// `line` up to a remark, without what is in quotes.
std::string StripQuotesAndComment(absl::string_view line) {
  std::string kept;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool begins = i == 0 || absl::StrContains(" \t,[{:", line[i - 1]);  // else part of a word
    if (quote != 0) {
      if (quote == '"' && line[i] == '\\') {
        ++i;
      } else if (line[i] == quote) {
        quote = 0;
      }
    } else if (begins && (line[i] == '"' || line[i] == '\'')) {
      quote = line[i];
    } else if (begins && line[i] == '#') {
      break;
    } else {
      kept += line[i];
    }
  }
  return kept;
}

// Why the parser may have stopped at `line`, from 0, which it says in words of its own: by what cannot be seen there. A word of several
// lines is said where it ends, so those before count too.
std::optional<Refused> FindInvisibleCause(absl::string_view text, int line) {
  constexpr int kLinesBefore = 2;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const int last = std::min(line, static_cast<int>(lines.size()) - 1);
  for (int at = last; at >= std::max(0, last - kLinesBefore); --at) {
    if (at == last && IsIndentedByATab(lines[at])) return Refused{at + 1, "a tab indents this line, and YAML takes spaces alone"};
    const std::string bare = StripQuotesAndComment(lines[at]);
    if (const InvisibleCharacter invisible = FirstInvisible(bare); !invisible.text.empty())
      return Refused{at + 1, WhyInvisible(invisible.text)};
  }
  return std::nullopt;
}

// A carriage return alone ends a line as well, which yaml-cpp does not know.
std::string WithLineFeeds(std::string text) {
  for (size_t at = text.find('\r'); at != std::string::npos; at = text.find('\r', at + 1)) {
    if (at + 1 == text.size() || text[at + 1] != '\n') text[at] = '\n';
  }
  return text;
}

std::optional<Refused> ParseYaml(absl::string_view document_text, Node& root, const DocumentLimits& limits) {
  const std::string text = WithLineFeeds(std::string(document_text));
  if (std::optional<Refused> refused = CheckText(text, limits.bytes)) return refused;
  try {
    std::istringstream stream{text};
    YAML::Parser parser(stream);
    bool any = false;
    // Each document has a line of its own that begins or ends it. yaml-cpp tells the same empty one for ever where a token is left that
    // begins none ("}").
    for (int64_t left = std::count(text.begin(), text.end(), '\n') + 2;; --left) {
      Node document;
      TreeBuilder builder(text, document, limits);
      if (!parser.HandleNextDocument(builder)) break;
      if (left == 0) return Refused{std::max(document.line, 1), "not YAML: what stands behind the document begins none"};
      any = true;
      if (document.kind == Node::Kind::kNull) continue;  // nothing, or remarks, between two lines of ---
      if (root.kind != Node::Kind::kNull) return Refused{document.line, "a second document: one file holds one document"};
      root = std::move(document);
    }
    if (!any) return Refused{1, "the document is empty"};
  } catch (const Refused& refused) {
    return refused;
  } catch (const YAML::Exception& error) {
    const Refused cause =
        FindInvisibleCause(text, error.mark.line).value_or(Refused{std::max(error.mark.line, 0) + 1, ExplainYamlError(error.msg)});
    return Refused{cause.line, absl::StrCat("not YAML: ", cause.why)};
  } catch (const std::exception& error) {
    return Refused{1, absl::StrCat("not YAML: ", error.what())};
  }
  return std::nullopt;
}

void RemoveDuplicateKeys(Node& node, const std::string& path, Problems& problems) {
  if (node.kind == Node::Kind::kMap) {
    std::unordered_map<std::string, int> first_line;
    size_t kept = 0;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const std::string child = JoinPath(path, node.keys[i]);
      const auto [found, fresh] = first_line.emplace(node.keys[i], node.items[i].line);
      if (!fresh) {
        problems.AddAtNode(node.items[i], child, absl::StrCat("duplicate key, first given on line ", found->second));
        continue;
      }
      RemoveDuplicateKeys(node.items[i], child, problems);
      if (kept != i) {
        node.keys[kept] = std::move(node.keys[i]);
        node.items[kept] = std::move(node.items[i]);
      }
      ++kept;
    }
    node.keys.resize(kept);
    node.items.resize(kept);
  } else {
    for (size_t i = 0; i < node.items.size(); ++i) RemoveDuplicateKeys(node.items[i], absl::StrCat(path, "[", i, "]"), problems);
  }
}

void MarkAsOverride(Node& node, int index) {
  node.override_index = index;
  for (Node& item : node.items) MarkAsOverride(item, index);
}

// Walks to the value that path names, making maps on the way; null and a reason when the path does not fit the tree.
Node* Reach(absl::string_view path, int index, Node& root, std::string& why) {
  Node* node = &root;
  absl::string_view rest = path;
  for (int depth = 0; !rest.empty(); ++depth) {
    if (depth == kMaxDocumentDepth / 2) {
      why = "the path is too deep";
      return nullptr;
    }
    const PathStep step = NextPathStep(rest);
    const std::string so_far(path.substr(0, path.size() - rest.size()));
    if (step.index >= 0) {
      if (node->kind != Node::Kind::kList || static_cast<size_t>(step.index) >= node->items.size()) {
        why = absl::StrCat(so_far, " does not exist");
        return nullptr;
      }
      node = &node->items[step.index];
      continue;
    }
    if (node->kind == Node::Kind::kNull) node->kind = Node::Kind::kMap;
    if (step.key.empty() || node->kind != Node::Kind::kMap) {
      why = absl::StrCat(so_far, step.key.empty() ? " is no path" : " does not exist: what holds it is no mapping");
      return nullptr;
    }
    const auto found = std::find(node->keys.begin(), node->keys.end(), step.key);
    if (found != node->keys.end()) {
      node = &node->items[found - node->keys.begin()];
    } else {
      node->keys.emplace_back(step.key);
      Node& made = node->items.emplace_back();
      made.override_index = index;
      node = &made;
    }
  }
  return node;
}

}  // namespace

const Node* Node::Find(absl::string_view key) const {
  if (kind != Kind::kMap) return nullptr;
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[found - keys.begin()];
}

bool LoadDocument(absl::string_view text, Node& root, Problems& problems, const DocumentLimits& limits) {
  if (const std::optional<Refused> refused = ParseYaml(text, root, limits)) {
    problems.AddAtLine(refused->line, "", refused->why);
    return false;
  }
  if (root.kind == Node::Kind::kNull) {
    problems.AddAtLine(1, "", "the document is empty");
    return false;
  }
  if (root.kind != Node::Kind::kMap) {
    const auto* format = base::FormatOf(text.substr(0, base::kFormatPrefixBytes), static_cast<int64_t>(text.size()));
    const std::string is =
        format == nullptr ? "" : absl::StrCat("; it is ", format->name, format->remedy.empty() ? "" : ": ", format->remedy);
    problems.AddAtLine(root.line, "", absl::StrCat("the document must be a mapping, got ", Describe(root), is));
    return false;
  }
  RemoveDuplicateKeys(root, "", problems);
  return true;
}

void ApplyOverrides(std::span<const std::string> overrides, Node& root, Problems& problems) {
  std::vector<std::string> paths;
  for (const std::string& text : overrides) paths.push_back(text.substr(0, text.find('=')));
  problems.SetOverridePaths(paths);
  for (size_t i = 0; i < overrides.size(); ++i) {
    const int index = static_cast<int>(i);
    const size_t equals = overrides[i].find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.AddAtOverride(index, "", "write FIELD=VALUE, as in spec.training.steps=50");
      continue;
    }
    Node value;
    const std::string text = overrides[i].substr(equals + 1);
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) {
      if (const std::optional<Refused> refused = ParseYaml(text, value, {})) {
        problems.AddAtOverride(index, "", refused->why);
        continue;
      }
    }
    MarkAsOverride(value, index);
    RemoveDuplicateKeys(value, paths[i], problems);
    std::string why;
    Node* target = Reach(paths[i], index, root, why);
    if (target == nullptr) {
      problems.AddAtOverride(index, "", why);
      continue;
    }
    *target = std::move(value);
  }
}

}  // namespace fusionllm::job
