#include "lib/workload/stored_parameters.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/tensor_fill.h"
#include "lib/job/initial_model.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"
#include "lib/models/families.h"
#include "lib/workload/parameter_names.h"

namespace fusionllm::workload {
namespace {

constexpr size_t kMaxListed = 20;   // tensors of a kind
constexpr size_t kMaxPatterns = 6;  // of an advice: more of them are no remedy
constexpr size_t kMaxPassedOver = 5;
constexpr size_t kMaxOfOtherType = 5;

// By name; null: of files elsewhere only the names are known.
using StoredEntries = std::map<std::string, const checkpoint::TensorEntry*>;

StoredEntries ParametersOf(const checkpoint::CheckpointReader& reader) {
  StoredEntries stored;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (reader.IsParameter(tensor)) stored.emplace(name, tensor.entry);
  }
  for (const checkpoint::FileEntry& file : reader.files_in_other_sites()) {
    if (checkpoint::ShardKindOf(file.name) != checkpoint::ShardKind::kModel) continue;
    for (const std::string& name : file.tensors) stored.emplace(name, nullptr);
  }
  return stored;
}

// Null: a graph of the job's own, or unknown.
const models::Family* FamilyOf(const absl::StatusOr<job::ResolvedModel>& model) { return model.ok() ? model->family : nullptr; }

// Null: no model of the family has one.
const models::TiedHead* TiedHeadOf(const models::Family* family) {
  const models::HuggingFaceFormat* const form = family == nullptr ? nullptr : family->hugging_face_format();
  return form == nullptr ? nullptr : &form->tied_head;
}

// Sizes that leave no trace in the shapes, of models of one family.
std::vector<job::FieldDifference> TracelessDifferences(const job::FusionJob& maker, const job::FusionJob& job) {
  const absl::StatusOr<job::ResolvedModel> theirs = job::ResolveModel(maker.spec), ours = job::ResolveModel(job.spec);
  const models::Family* const family = FamilyOf(ours);
  if (family == nullptr || family->hugging_face_format() == nullptr || FamilyOf(theirs) != family) return {};
  std::vector<job::FieldDifference> found;
  for (const models::StoredSize& size : family->hugging_face_format()->sizes) {
    const std::optional<int64_t>&from = theirs->sizes.settings.*size.value, &to = ours->sizes.settings.*size.value;
    if (size.absent_in_shapes == nullptr || !from || !to || *from == *to) continue;
    found.push_back({absl::StrCat("spec.model.config.", size.field), absl::StrCat(*from), absl::StrCat(*to)});
  }
  return found;
}

absl::StatusOr<bool> HaveEqualBytes(const checkpoint::StoredTensor& a, const checkpoint::StoredTensor& b) {
  std::vector<std::byte> left(1 << 20), right(left.size());
  for (int64_t at = 0; at < a.entry->bytes(); at += static_cast<int64_t>(left.size())) {
    const size_t length = std::min(left.size(), static_cast<size_t>(a.entry->bytes() - at));
    FUSIONLLM_RETURN_IF_ERROR(a.file->ReadBytes(*a.entry, at, std::span(left).first(length)));
    FUSIONLLM_RETURN_IF_ERROR(b.file->ReadBytes(*b.entry, at, std::span(right).first(length)));
    if (std::memcmp(left.data(), right.data(), length) != 0) return false;
  }
  return true;
}

// Of a head that the job ties to the embedding. One that is stored in another dtype is compared as it would be read.
absl::StatusOr<bool> IsTheEmbedding(const models::TiedHead& tied, const checkpoint::CheckpointReader& reader) {
  const auto head = reader.tensors().find(tied.head), embedding = reader.tensors().find(tied.embedding);
  if (head == reader.tensors().end() || embedding == reader.tensors().end()) return false;
  const checkpoint::TensorEntry &a = *head->second.entry, &b = *embedding->second.entry;
  if (a.shape != b.shape) return false;
  if (a.dtype_name == b.dtype_name) return HaveEqualBytes(head->second, embedding->second);
  const tensor::TensorType type{tensor::DType::kF32, a.shape};
  if (!checkpoint::CanFill(a, type) || !checkpoint::CanFill(b, type)) return false;
  tensor::Tensor left(type), right(type);
  FUSIONLLM_RETURN_IF_ERROR(reader.Read(tied.head, left.view()));
  FUSIONLLM_RETURN_IF_ERROR(reader.Read(tied.embedding, right.view()));
  return std::memcmp(left.f32(), right.f32(), type.bytes()) == 0;
}

// Of the batch norms that are stored.
std::set<std::string> RunningStatistics(const opdag::Graph& graph, const StoredEntries& stored) {
  std::set<std::string> names;
  for (const opdag::Op& op : graph.ops()) {
    if (op.kind != opdag::OpKind::kBatchNorm || !stored.contains(graph.parameter(op.parameters[0]).name)) continue;
    for (const opdag::ParameterId id : op.parameters) {
      const opdag::Parameter& parameter = graph.parameter(id);
      if (!parameter.trainable && !MayBeginAtZero(parameter.type)) names.insert(parameter.name);
    }
  }
  return names;
}

// "f32" for "F32": types have their names in capitals there.
bool HasLowerCaseType(const checkpoint::TensorEntry& entry) {
  return !entry.dtype && checkpoint::StoredDType(absl::AsciiStrToUpper(entry.dtype_name));
}

// All but the type is right: a conversion of the file helps, and nothing has to begin fresh.
bool IsOfOtherType(const checkpoint::TensorEntry& entry, const tensor::TensorType& type) {
  return type.dtype == tensor::DType::kF32 && entry.shape == type.shape && !HasLowerCaseType(entry);
}

std::string Unlike(const opdag::Parameter& parameter, const checkpoint::TensorEntry& entry) {
  if (HasLowerCaseType(entry)) {
    return absl::StrCat(parameter.name, " is of a type \"", entry.dtype_name, "\", which safetensors does not have: write ",
                        absl::AsciiStrToUpper(entry.dtype_name));
  }
  const bool shape_alone = checkpoint::CanFill(entry, {parameter.type.dtype, entry.shape});
  return absl::StrCat(parameter.name, " is ", shape_alone ? "" : entry.dtype_name, entry.shape.ToString(), ", not ",
                      shape_alone ? parameter.type.shape.ToString() : parameter.type.ToString());
}

bool IsTransposed(const checkpoint::TensorEntry& entry, const tensor::TensorType& type) {
  const std::vector<int64_t>&is = entry.shape.dims(), &wanted = type.shape.dims();
  return is.size() == 2 && wanted.size() == 2 && is[0] == wanted[1] && is[1] == wanted[0];
}

class Comparison {
 public:
  Comparison(const job::FusionJob& job, const opdag::Graph& graph, const checkpoint::CheckpointReader& reader, ReadFor reason)
      : init_(job.spec.model.init),
        graph_(graph),
        reader_(reader),
        reason_(reason),
        model_(job::ResolveModel(job.spec)),
        stored_(ParametersOf(reader)) {
    for (const opdag::Parameter& parameter : graph.parameters()) wanted_.insert(parameter.name);
    for (const std::string& name : wanted_) model_counts_.Add(name);
    for (const auto& [name, entry] : stored_) stored_counts_.Add(name);
  }

  absl::StatusOr<ParameterMismatch> Make() {
    CompareWanted();
    FUSIONLLM_RETURN_IF_ERROR(CompareStored());
    if (reason_ == ReadFor::kStart) FindUnmatched();
    if (mismatch_.empty() || !model_.ok()) return std::move(mismatch_);
    mismatch_.transposed = all_transposed_ && !mismatch_.unlike.empty();
    CompareSizes();
    AdviseSkip();
    return std::move(mismatch_);
  }

 private:
  void CompareWanted() {
    const std::set<std::string> statistics = RunningStatistics(graph_, stored_);
    for (const opdag::Parameter& parameter : graph_.parameters()) {
      const std::string& name = parameter.name;
      if (reason_ == ReadFor::kStart && job::MatchesAny(init_.skip, name)) continue;
      const auto found = stored_.find(name);
      if (found == stored_.end()) {
        if (reason_ != ReadFor::kResume && MayBeginAtZero(parameter.type)) continue;
        (statistics.contains(name) ? mismatch_.statistics : mismatch_.missing).push_back(name);
      } else if (found->second != nullptr && !checkpoint::CanFill(*found->second, parameter.type)) {
        if (reason_ != ReadFor::kResume && MayBeginAtZero(parameter.type)) continue;
        if (IsOfOtherType(*found->second, parameter.type)) {
          mismatch_.other_types[found->second->dtype_name].push_back(name);
          continue;
        }
        all_transposed_ = all_transposed_ && IsTransposed(*found->second, parameter.type);
        mismatch_.unlike.push_back(Unlike(parameter, *found->second));
        if (found->second->shape != parameter.type.shape) unlike_.push_back(name);
      }
    }
  }

  absl::Status CompareStored() {
    const models::Family* const family = FamilyOf(model_);
    const models::TiedHead* const tied = TiedHeadOf(family);
    for (const auto& [name, entry] : stored_) {
      if (wanted_.contains(name) || IsBuffer(name, family) || job::MatchesAny(init_.ignore, name)) continue;
      if (reason_ != ReadFor::kResume && job::MatchesAny(init_.skip, name)) continue;
      const bool tied_head = tied != nullptr && name == tied->head && (model_->sizes.settings.*tied->value).value_or(false);
      if (tied_head) {
        FUSIONLLM_ASSIGN_OR_RETURN(const bool stored_twice, IsTheEmbedding(*tied, reader_));
        if (stored_twice) continue;
        mismatch_.untied = tied;
      }
      const bool counts = reason_ == ReadFor::kResume || tied_head || !model_counts_.Beyond(name).empty();
      (counts ? mismatch_.unread : mismatch_.passed_over).push_back(name);
    }
    return absl::OkStatus();
  }

  // What names and shapes say of the sizes, where the job has others.
  void CompareSizes() {
    const models::Family* const family = FamilyOf(model_);
    if (family == nullptr) return;
    models::StoredShapes shapes;
    for (const auto& [name, entry] : stored_) shapes.emplace(name, entry == nullptr ? nullptr : &entry->shape);
    const models::TiedHead* const tied = TiedHeadOf(family);
    const auto has = [&](const std::vector<std::string>& names) {
      return tied != nullptr && std::find(names.begin(), names.end(), tied->head) != names.end();
    };
    const models::HeadFound head = {.unread = has(mismatch_.unread), .missing = has(mismatch_.missing)};
    for (const models::SizeDifference& size : family->DifferencesFrom(shapes, model_->sizes, head)) {
      mismatch_.fields.push_back({absl::StrCat("spec.model.", size.field), size.from, size.to});
    }
  }

  void FindUnmatched() {
    for (const std::string& pattern : init_.skip) {
      const auto matches = [&](const std::string& name) { return job::MatchesAny({pattern}, name); };
      const bool of_file = std::any_of(stored_.begin(), stored_.end(), [&](const auto& entry) { return matches(entry.first); });
      if (!of_file && std::none_of(wanted_.begin(), wanted_.end(), matches)) mismatch_.unmatched.push_back(Unmatched(pattern));
    }
  }

  std::string Unmatched(const std::string& pattern) const {
    const std::string behind = absl::StrCat("*", pattern);
    const bool near = std::any_of(wanted_.begin(), wanted_.end(), [&](const std::string& name) { return job::MatchesAny({behind}, name); });
    const std::string example = wanted_.empty() ? "" : absl::StrCat("; the model has names like '", *wanted_.begin(), "'");
    return absl::StrCat("'", pattern, "'", near ? absl::StrCat(" (did you mean '", behind, "'?)") : example);
  }

  void AdviseSkip() {
    std::vector<std::string> fresh = mismatch_.missing;
    if (!mismatch_.transposed) fresh.insert(fresh.end(), unlike_.begin(), unlike_.end());
    const auto add = [&](std::vector<std::string> patterns) {
      for (std::string& pattern : patterns) {
        if (std::find(mismatch_.skip.begin(), mismatch_.skip.end(), pattern) == mismatch_.skip.end())
          mismatch_.skip.push_back(std::move(pattern));
      }
    };
    if (reason_ == ReadFor::kStart) {
      add(PatternsFor(fresh, {wanted_.begin(), wanted_.end()}, stored_counts_));
      for (const std::string& name : mismatch_.statistics) add({absl::StrCat("*", name.substr(std::min(name.rfind('.'), name.size())))});
    }
    std::vector<std::string> names;
    for (const auto& [name, entry] : stored_) names.push_back(name);
    add(PatternsFor(mismatch_.unread, names, model_counts_));
  }

  const job::Init& init_;
  const opdag::Graph& graph_;
  const checkpoint::CheckpointReader& reader_;
  const ReadFor reason_;
  const absl::StatusOr<job::ResolvedModel> model_;
  const StoredEntries stored_;
  std::set<std::string> wanted_;
  NameCounts model_counts_, stored_counts_;
  std::vector<std::string> unlike_;  // names of mismatch_.unlike, where shapes differ
  bool all_transposed_ = true;
  ParameterMismatch mismatch_;
};

std::string Some(const std::vector<std::string>& texts, size_t most = kMaxListed) {
  const size_t listed = std::min(texts.size(), most);
  return absl::StrCat(absl::StrJoin(texts.begin(), texts.begin() + static_cast<int64_t>(listed), ", "),
                      texts.size() > listed ? absl::StrCat(" and ", texts.size() - listed, " more") : "");
}

std::string Count(const std::vector<std::string>& names) { return base::Pluralize(static_cast<int64_t>(names.size()), "tensor"); }

std::string PatternList(const std::vector<std::string>& patterns) { return absl::StrCat("['", absl::StrJoin(patterns, "', '"), "']"); }

std::string Remedy(const ParameterMismatch& misfit) {
  std::vector<std::string> fields;
  for (const job::FieldDifference& field : misfit.fields) fields.push_back(absl::StrCat(field.path, ": ", field.from));
  std::vector<std::string> remedies;
  if (!misfit.other_types.empty()) remedies.push_back("convert the file to one of these types");
  if (misfit.transposed) {
    remedies.push_back(
        "transpose these matrices and all others of their kind (square ones show nothing): they lie [out, in], as torch.nn.Linear has "
        "them, where GPT-2's are [in, out]");
  }
  if (!fields.empty()) remedies.push_back(absl::StrCat("give the file's own ", absl::StrJoin(fields, ", ")));
  if (!misfit.skip.empty() && misfit.skip.size() <= kMaxPatterns) {
    const bool begin = misfit.unread.empty() || !misfit.missing.empty() || !misfit.unlike.empty() || !misfit.statistics.empty();
    remedies.push_back(absl::StrCat(begin                       ? "let what differs begin fresh"
                                    : misfit.unread.size() == 1 ? "leave it unread"
                                                                : "leave them unread",
                                    " by spec.model.init.skip: ", PatternList(misfit.skip)));
  }
  return remedies.empty() ? "" : absl::StrCat("; ", absl::StrJoin(remedies, ", or "));
}

std::vector<std::string> WarningsOf(const ParameterMismatch& misfit, const std::string& path) {
  if (misfit.passed_over.empty()) return {};
  return {absl::StrCat(path, " has ", Count(misfit.passed_over), " that the model does not have, left unread: ",
                       Some(misfit.passed_over, kMaxPassedOver), "; spec.model.init.ignore names what may be left without a word")};
}

}  // namespace

bool MayBeginAtZero(const tensor::TensorType& type) { return type.dtype == tensor::DType::kI64 && type.shape.dims().empty(); }

bool BeginsAtZero(const tensor::TensorType& type, const checkpoint::CheckpointReader& stored, const std::string& name) {
  if (!MayBeginAtZero(type)) return false;
  const auto found = stored.tensors().find(name);
  return found == stored.tensors().end() || !checkpoint::CanFill(*found->second.entry, type);
}

absl::StatusOr<ParameterMismatch> CompareParameters(const job::FusionJob& job, const opdag::Graph& graph,
                                                    const checkpoint::CheckpointReader& stored, ReadFor reason) {
  return Comparison(job, graph, stored, reason).Make();
}

std::string Describe(const ParameterMismatch& misfit, const std::string& path) {
  if (misfit.empty()) return "";
  std::vector<std::string> parts;
  const auto tell = [&](const std::vector<std::string>& names, const std::string& what) {
    if (!names.empty()) parts.push_back(absl::StrCat(what, Some(names)));
  };
  if (!misfit.fields.empty()) parts.push_back(absl::StrCat("it is of another model: ", job::ToString(misfit.fields, misfit.fields.size())));
  tell(misfit.unmatched, "neither it nor the model has a tensor that spec.model.init.skip matches by ");
  if (!misfit.missing.empty()) {
    const std::vector<std::string> more(misfit.missing.begin() + 1, misfit.missing.end());
    parts.push_back(
        absl::StrCat("it has no tensor '", misfit.missing[0], "'",
                     more.empty() ? "" : absl::StrCat(" and ", more.size(), " more that the model has: ", Some(more, kMaxListed - 1))));
  }
  tell(misfit.statistics, "running statistics of batch norms, with which a trained model computes, are not there: ");
  tell(misfit.unread, absl::StrCat("it has ", Count(misfit.unread), " that the model does not have: "));
  if (misfit.untied != nullptr) {
    parts.push_back(absl::StrCat(misfit.untied->head, " is not ", misfit.untied->embedding, ", to which the job ties it"));
  }
  // Under which names it has what is missing.
  if (!misfit.missing.empty()) tell(misfit.passed_over, absl::StrCat("it has ", Count(misfit.passed_over), " of other names: "));
  tell(misfit.unlike, "");
  for (const auto& [type, names] : misfit.other_types) {
    parts.push_back(absl::StrCat(Count(names), names.size() == 1 ? " is " : " are ", type,
                                 ", where F32, F16 and BF16 are read: ", Some(names, kMaxOfOtherType)));
  }
  return absl::StrCat(path, ": ", absl::StrJoin(parts, "; "));
}

absl::StatusOr<std::vector<std::string>> CheckStart(const job::FusionJob& job, const opdag::Graph& graph,
                                                    const checkpoint::CheckpointReader& stored, ReadFor reason) {
  FUSIONLLM_ASSIGN_OR_RETURN(ParameterMismatch misfit, CompareParameters(job, graph, stored, reason));
  if (misfit.empty() && stored.manifest().has_value()) {
    const absl::StatusOr<job::FusionJob> maker = job::ParseFusionJob(stored.manifest()->resolved_job, "resolved_job");
    if (maker.ok()) misfit.fields = TracelessDifferences(*maker, job);
    if (!misfit.fields.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(stored.path(), ": it is of another model: ", job::ToString(misfit.fields, misfit.fields.size())));
    }
  }
  if (misfit.empty()) return WarningsOf(misfit, stored.path());
  return absl::InvalidArgumentError(absl::StrCat(Describe(misfit, stored.path()), Remedy(misfit)));
}

}  // namespace fusionllm::workload
