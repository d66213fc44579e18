// As much of NVIDIA's driver, libcuda.so.1, as cuDNN looks for when it is loaded, on machines that have none: functions answer that there
// is no device, but those by which code is loaded, which take it and keep nothing. With it the library lists and plans algorithms for a
// card that is described to it, and compiles what they are to run.
//
// Names are those of "CUDA Driver API", release 13.0; the functions take fewer arguments than there, and read none.
namespace {

constexpr int kNoDevice = 100;         // CUDA_ERROR_NO_DEVICE
constexpr int kDriverVersion = 13000;  // what the planning of kernels asks for
constexpr char kLoaded = 0;            // whose address stands for whatever is loaded

}  // namespace

#define FUSIONLLM_ABSENT(name) \
  int name() { return kNoDevice; }

extern "C" {

FUSIONLLM_ABSENT(cuCtxGetCurrent)
FUSIONLLM_ABSENT(cuCtxGetLimit)
FUSIONLLM_ABSENT(cuCtxPopCurrent)
FUSIONLLM_ABSENT(cuCtxPushCurrent)
FUSIONLLM_ABSENT(cuDeviceGet)
FUSIONLLM_ABSENT(cuDeviceGetCount)
FUSIONLLM_ABSENT(cuGetErrorName)
FUSIONLLM_ABSENT(cuGetErrorString)
FUSIONLLM_ABSENT(cuInit)
FUSIONLLM_ABSENT(cuKernelGetAttribute)
FUSIONLLM_ABSENT(cuLaunchCooperativeKernel)
FUSIONLLM_ABSENT(cuLaunchKernel)
FUSIONLLM_ABSENT(cuLaunchKernelEx)
FUSIONLLM_ABSENT(cuLibraryLoadFromFile)
FUSIONLLM_ABSENT(cuLinkAddData)
FUSIONLLM_ABSENT(cuLinkComplete)
FUSIONLLM_ABSENT(cuLinkCreate)
FUSIONLLM_ABSENT(cuLinkDestroy)
FUSIONLLM_ABSENT(cuModuleGetFunction)
FUSIONLLM_ABSENT(cuModuleLoadData)
FUSIONLLM_ABSENT(cuModuleUnload)
FUSIONLLM_ABSENT(cuOccupancyMaxPotentialClusterSize)
FUSIONLLM_ABSENT(cuStreamGetCtx)
FUSIONLLM_ABSENT(cuTensorMapEncodeIm2col)
FUSIONLLM_ABSENT(cuTensorMapEncodeTiled)

int cuLibraryLoadData(const void** library) {
  *library = &kLoaded;
  return 0;
}
int cuLibraryGetKernel(const void** kernel) {
  *kernel = &kLoaded;
  return 0;
}
int cuKernelGetFunction(const void** function) {
  *function = &kLoaded;
  return 0;
}
int cuKernelSetAttribute() { return 0; }
int cuLibraryUnload() { return 0; }

int cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return 0;
}

}  // extern "C"
