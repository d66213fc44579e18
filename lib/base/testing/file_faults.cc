// Makes file operations of a process fail, for tests of what programs do then: a library for LD_PRELOAD, which sees every operation of a
// program, whichever library makes it.
//
// FUSIONLLM_FILE_FAULTS="program=fusion-executor path=/corpus operation=open error=13 skip=2": in processes of that name, operations of
// that kind (open, read, write, sync, rename, mkdir, remove; to follow a link is to read it) on files whose path has `path` in it fail with
// that errno, all but the first `skip`. FUSIONLLM_FILE_FAULTS_LOG: the first failures of each process are written here, as "OPERATION
// PATH".
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>

namespace {

constexpr int kMaxDescriptors = 1 << 16;
constexpr int kMaxLogLines = 64;  // a program that tries for ever must not fill the disk

struct Faults {
  std::string program, path, operation, log;
  int error = 0;
  int skip = 0;
};

std::string FieldOf(const std::string& text, const std::string& name) {
  const size_t at = (" " + text).find(" " + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 1;
  return text.substr(begin, text.find(' ', begin) - begin);
}

// Never freed: other threads may still work with files when the process ends.
const Faults& Wanted() {
  static const Faults* const faults = [] {
    auto* made = new Faults;
    const char* text = getenv("FUSIONLLM_FILE_FAULTS");
    if (text == nullptr) return made;
    made->program = FieldOf(text, "program");
    made->path = FieldOf(text, "path");
    made->operation = FieldOf(text, "operation");
    made->error = atoi(FieldOf(text, "error").c_str());
    made->skip = atoi(FieldOf(text, "skip").c_str());
    if (const char* log = getenv("FUSIONLLM_FILE_FAULTS_LOG"); log != nullptr) made->log = log;
    return made;
  }();
  return *faults;
}

// False until libraries below this one are initialised: a sanitizer's runtime is one, and makes folders before its functions may be called.
bool is_ready = false;
[[gnu::constructor]] void BeReady() { is_ready = true; }

std::array<std::atomic<bool>, kMaxDescriptors> watched;
std::atomic<int> seen = 0;

bool IsMeant(const char* path) {
  if (!is_ready) return false;
  const Faults& faults = Wanted();
  return faults.error != 0 && path != nullptr && program_invocation_short_name == faults.program &&
         strstr(path, faults.path.c_str()) != nullptr;
}

void AppendToLog(const char* operation, const char* path) {
  const std::string line = std::string(operation) + " " + path + "\n";
  const long file = syscall(SYS_openat, AT_FDCWD, Wanted().log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  syscall(SYS_write, file, line.data(), line.size());
  syscall(SYS_close, file);
}

// True: errno is set, and the operation has failed.
bool Fails(const char* operation, const char* path) {
  if (!IsMeant(path) || Wanted().operation != operation) return false;
  const int number = seen.fetch_add(1);
  if (number < Wanted().skip) return false;
  if (number - Wanted().skip < kMaxLogLines) AppendToLog(operation, path);
  errno = Wanted().error;
  return true;
}

bool FailsOn(const char* operation, int descriptor) {
  if (descriptor < 0 || descriptor >= kMaxDescriptors || !watched[static_cast<size_t>(descriptor)]) return false;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const long length = syscall(SYS_readlink, link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return Fails(operation, path);
}

int Opened(int descriptor, const char* path) {
  if (descriptor >= 0 && descriptor < kMaxDescriptors) watched[static_cast<size_t>(descriptor)] = IsMeant(path);
  return descriptor;
}

template <typename Function>
Function* Real(Function* /*of this type*/, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define REAL(name) static auto* const real = Real(&name, #name)

extern "C" {

int open(const char* path, int flags, ...) {
  REAL(open);
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return Fails("open", path) ? -1 : Opened(real(path, flags, mode), path);
}
int open64(const char* path, int flags, ...) {
  REAL(open64);
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return Fails("open", path) ? -1 : Opened(real(path, flags, mode), path);
}
int openat(int folder, const char* path, int flags, ...) {
  REAL(openat);
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return Fails("open", path) ? -1 : Opened(real(folder, path, flags, mode), path);
}
FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  if (Fails("open", path)) return nullptr;
  FILE* const file = real(path, mode);
  if (file != nullptr) Opened(fileno(file), path);
  return file;
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(fopen64);
  if (Fails("open", path)) return nullptr;
  FILE* const file = real(path, mode);
  if (file != nullptr) Opened(fileno(file), path);
  return file;
}
int mkostemp(char* path, int flags) {
  REAL(mkostemp);
  return Fails("open", path) ? -1 : Opened(real(path, flags), path);
}
DIR* opendir(const char* path) {
  REAL(opendir);
  return Fails("open", path) ? nullptr : real(path);
}
int close(int descriptor) {
  REAL(close);
  if (descriptor >= 0 && descriptor < kMaxDescriptors) watched[static_cast<size_t>(descriptor)] = false;
  return real(descriptor);
}

ssize_t read(int descriptor, void* bytes, size_t count) {
  REAL(read);
  return FailsOn("read", descriptor) ? -1 : real(descriptor, bytes, count);
}
ssize_t pread(int descriptor, void* bytes, size_t count, off_t at) {
  REAL(pread);
  return FailsOn("read", descriptor) ? -1 : real(descriptor, bytes, count, at);
}
ssize_t pread64(int descriptor, void* bytes, size_t count, off64_t at) {
  REAL(pread64);
  return FailsOn("read", descriptor) ? -1 : real(descriptor, bytes, count, at);
}
ssize_t readlink(const char* path, char* into, size_t count) {
  REAL(readlink);
  return Fails("read", path) ? -1 : real(path, into, count);
}
ssize_t write(int descriptor, const void* bytes, size_t count) {
  REAL(write);
  return FailsOn("write", descriptor) ? -1 : real(descriptor, bytes, count);
}
ssize_t writev(int descriptor, const struct iovec* pieces, int count) {
  REAL(writev);
  return FailsOn("write", descriptor) ? -1 : real(descriptor, pieces, count);
}
ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t at) {
  REAL(pwrite);
  return FailsOn("write", descriptor) ? -1 : real(descriptor, bytes, count, at);
}
ssize_t pwrite64(int descriptor, const void* bytes, size_t count, off64_t at) {
  REAL(pwrite64);
  return FailsOn("write", descriptor) ? -1 : real(descriptor, bytes, count, at);
}
int fsync(int descriptor) {
  REAL(fsync);
  return FailsOn("sync", descriptor) ? -1 : real(descriptor);
}
int fdatasync(int descriptor) {
  REAL(fdatasync);
  return FailsOn("sync", descriptor) ? -1 : real(descriptor);
}
int rename(const char* from, const char* to) {
  REAL(rename);
  return Fails("rename", to) ? -1 : real(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned int flags) {
  REAL(renameat2);
  return Fails("rename", to) ? -1 : real(from_folder, from, to_folder, to, flags);
}
int symlink(const char* target, const char* path) {
  REAL(symlink);
  return Fails("rename", path) ? -1 : real(target, path);
}
int link(const char* from, const char* to) {
  REAL(link);
  return Fails("rename", to) ? -1 : real(from, to);
}
int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  return Fails("mkdir", path) ? -1 : real(path, mode);
}
char* mkdtemp(char* path) {
  REAL(mkdtemp);
  return Fails("mkdir", path) ? nullptr : real(path);
}
int unlink(const char* path) {
  REAL(unlink);
  return Fails("remove", path) ? -1 : real(path);
}
int unlinkat(int folder, const char* path, int flags) {
  REAL(unlinkat);
  return Fails("remove", path) ? -1 : real(folder, path, flags);
}

}  // extern "C"
