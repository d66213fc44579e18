#include "lib/workload/stored_parameters.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/counted.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::workload {
namespace {

constexpr size_t kMaxTold = 3;  // tensors of a kind
constexpr absl::string_view kBlocks = "transformer.h.";
constexpr char kTokenEmbedding[] = "transformer.wte.weight", kPositions[] = "transformer.wpe.weight", kHead[] = "lm_head.weight";

// Shapes by name; of files elsewhere only the names are known.
using Stored = std::map<std::string, std::optional<tensor::Shape>>;

Stored ParametersOf(const checkpoint::CheckpointReader& reader) {
  Stored stored;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (reader.IsParameter(tensor)) stored.emplace(name, tensor.entry->shape);
  }
  for (const checkpoint::FileEntry& file : reader.elsewhere()) {
    if (checkpoint::ShardKindOf(file.name) != checkpoint::ShardKind::kModel) continue;
    for (const std::string& name : file.tensors) stored.emplace(name, std::nullopt);
  }
  return stored;
}

std::optional<job::GptConfig> GptOf(const job::FusionJob& job) {
  const absl::StatusOr<job::ResolvedModel> model = job::ResolveModel(job.spec);
  if (!model.ok() || !std::holds_alternative<job::GptConfig>(*model)) return std::nullopt;
  return std::get<job::GptConfig>(*model);
}

// 0: of another family.
int64_t HeadsOf(const job::FusionJob& job) {
  const std::optional<job::GptConfig> gpt = GptOf(job);
  return gpt ? gpt->n_head : 0;
}

// What lies beside parameters in files of others, and says nothing of the model.
bool IsBuffer(absl::string_view name, bool gpt2) {
  if (absl::EndsWith(name, ".num_batches_tracked")) return true;
  return gpt2 && absl::StartsWith(name, kBlocks) && (absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias"));
}

absl::StatusOr<bool> AreEqual(const checkpoint::StoredTensor& a, const checkpoint::StoredTensor& b) {
  if (a.entry->dtype_name != b.entry->dtype_name || a.entry->shape != b.entry->shape) return false;
  std::vector<std::byte> left(1 << 20), right(left.size());
  for (int64_t at = 0; at < a.entry->bytes(); at += static_cast<int64_t>(left.size())) {
    const size_t length = std::min(left.size(), static_cast<size_t>(a.entry->bytes() - at));
    FUSIONLLM_RETURN_IF_ERROR(a.file->ReadBytes(*a.entry, at, std::span(left).first(length)));
    FUSIONLLM_RETURN_IF_ERROR(b.file->ReadBytes(*b.entry, at, std::span(right).first(length)));
    if (std::memcmp(left.data(), right.data(), length) != 0) return false;
  }
  return true;
}

// Of a head that the job ties to the embedding.
absl::StatusOr<bool> IsTheEmbedding(const checkpoint::CheckpointReader& reader) {
  const auto head = reader.tensors().find(kHead), embedding = reader.tensors().find(kTokenEmbedding);
  if (head == reader.tensors().end() || embedding == reader.tensors().end()) return false;
  return AreEqual(head->second, embedding->second);
}

int64_t BlocksOf(const Stored& stored) {
  int64_t blocks = 0;
  for (const auto& [name, shape] : stored) {
    if (!absl::StartsWith(name, kBlocks)) continue;
    int64_t block = 0;
    const std::string rest = name.substr(kBlocks.size());
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &block) && block < int64_t{1} << 32) blocks = std::max(blocks, block + 1);
  }
  return blocks;
}

std::vector<job::FieldDifference> GptFields(const job::GptConfig& wanted, const Stored& stored, const ParameterMisfit& misfit) {
  std::vector<job::FieldDifference> fields;
  const auto add = [&](absl::string_view field, std::string from, std::string to) {
    if (from != to) fields.push_back({absl::StrCat("spec.model.config.", field), std::move(from), std::move(to)});
  };
  const auto extents = [&](const char* name) -> std::optional<std::array<int64_t, 2>> {
    const auto found = stored.find(name);
    if (found == stored.end() || !found->second || found->second->rank() != 2) return std::nullopt;
    return std::array{found->second->dim(0), found->second->dim(1)};
  };
  if (const int64_t blocks = BlocksOf(stored); blocks > 0) add("nLayer", absl::StrCat(blocks), absl::StrCat(wanted.n_layer));
  if (const auto tokens = extents(kTokenEmbedding)) {
    add("nEmbd", absl::StrCat((*tokens)[1]), absl::StrCat(wanted.n_embd));
    add("vocabSize", absl::StrCat((*tokens)[0]), absl::StrCat(wanted.vocab_size));
  }
  if (const auto positions = extents(kPositions)) add("blockSize", absl::StrCat((*positions)[0]), absl::StrCat(wanted.block_size));
  const auto has = [](const std::vector<std::string>& names) { return std::find(names.begin(), names.end(), kHead) != names.end(); };
  if (has(misfit.unread)) add("tieWeights", "false", "true");
  if (has(misfit.missing)) add("tieWeights", "true", "false");
  return fields;
}

std::string Some(const std::vector<std::string>& names) {
  const size_t told = std::min(names.size(), kMaxTold);
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + static_cast<int64_t>(told), ", "),
                      names.size() > told ? absl::StrCat(" and ", names.size() - told, " more") : "");
}

}  // namespace

absl::StatusOr<ParameterMisfit> CompareParameters(const job::FusionJob& job, const opdag::Graph& graph,
                                                  const checkpoint::CheckpointReader& reader) {
  const Stored stored = ParametersOf(reader);
  const std::optional<job::GptConfig> gpt = GptOf(job);
  ParameterMisfit misfit;
  std::set<std::string> wanted;
  for (const opdag::Parameter& parameter : graph.parameters()) {
    wanted.insert(parameter.name);
    const auto found = stored.find(parameter.name);
    if (found == stored.end()) {
      misfit.missing.push_back(parameter.name);
    } else if (found->second && *found->second != parameter.type.shape) {
      misfit.shapes.push_back(absl::StrCat(parameter.name, " is ", found->second->ToString(), ", not ", parameter.type.shape.ToString()));
    }
  }
  const std::vector<std::string>& ignored = job.spec.model.init.ignore;
  for (const auto& [name, shape] : stored) {
    if (wanted.contains(name) || IsBuffer(name, gpt.has_value())) continue;
    if (std::any_of(ignored.begin(), ignored.end(), [&](const auto& pattern) { return scheduler::MatchesGlob(pattern, name); })) continue;
    if (gpt && gpt->tie_weights && name == kHead) {
      FUSIONLLM_ASSIGN_OR_RETURN(const bool stored_twice, IsTheEmbedding(reader));
      if (stored_twice) continue;
    }
    misfit.unread.push_back(name);
  }
  if (gpt && !misfit.empty()) misfit.fields = GptFields(*gpt, stored, misfit);
  return misfit;
}

std::string Describe(const ParameterMisfit& misfit, const std::string& path) {
  if (misfit.empty()) return "";
  std::vector<std::string> parts;
  if (!misfit.fields.empty()) parts.push_back(absl::StrCat("it is of another model: ", job::ToString(misfit.fields, misfit.fields.size())));
  if (!misfit.missing.empty()) {
    parts.push_back(
        absl::StrCat("it has no tensor '", misfit.missing[0], "'",
                     misfit.missing.size() == 1 ? "" : absl::StrCat(" and ", misfit.missing.size() - 1, " more that the model has")));
  }
  if (!misfit.unread.empty()) {
    parts.push_back(absl::StrCat("it has ", base::Counted(static_cast<int64_t>(misfit.unread.size()), "tensor"),
                                 " that the model does not have: ", Some(misfit.unread)));
  }
  if (!misfit.shapes.empty()) parts.push_back(Some(misfit.shapes));
  return absl::StrCat(path, ": ", absl::StrJoin(parts, "; "));
}

absl::Status CheckStart(const job::FusionJob& job, const opdag::Graph& graph, const checkpoint::CheckpointReader& stored) {
  FUSIONLLM_ASSIGN_OR_RETURN(ParameterMisfit misfit, CompareParameters(job, graph, stored));
  if (misfit.empty() && stored.manifest().has_value()) {
    // Heads leave no trace in the shapes.
    const absl::StatusOr<job::FusionJob> maker = job::ParseFusionJob(stored.manifest()->resolved_job, "resolved_job");
    const int64_t theirs = maker.ok() ? HeadsOf(*maker) : 0, ours = HeadsOf(job);
    if (theirs > 0 && ours > 0 && theirs != ours) {
      misfit.fields.push_back({"spec.model.config.nHead", absl::StrCat(theirs), absl::StrCat(ours)});
      return absl::InvalidArgumentError(
          absl::StrCat(stored.path(), ": it is of another model: ", job::ToString(misfit.fields, misfit.fields.size())));
    }
  }
  if (misfit.empty()) return absl::OkStatus();
  const bool only_unread = misfit.missing.empty() && misfit.shapes.empty() && !misfit.unread.empty();
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(misfit, stored.path()),
                   only_unread ? "; give the model's own sizes, or leave the tensors unread by spec.model.init.ignore" : ""));
}

}  // namespace fusionllm::workload
