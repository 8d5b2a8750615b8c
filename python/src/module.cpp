// SPDX-License-Identifier: Apache-2.0
// octavo._octavo: what the package's Python code calls. Checks of arguments that need Python's
// types are in that code; all others are the library's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "call.h"
#include "device.h"
#include "octavo/cuda.h"
#include "octavo/engine.h"
#include "octavo/version.h"
#include "quantise.h"

namespace octavo::python {
namespace {

PyObject* exception_type(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return PyExc_ValueError;
    case ErrorCode::unsupported: return PyExc_NotImplementedError;
    case ErrorCode::io: return PyExc_OSError;
    case ErrorCode::cuda: return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    PyErr_SetString(exception_type(error.code()), error.what());
  }
}

#ifdef OCTAVO_WITH_CUDA
constexpr bool kBuiltWithCuda = true;
#else
constexpr bool kBuiltWithCuda = false;
#endif

nb::tuple describe_array(const std::string& function, const std::string& name, nb::handle array,
                         const std::optional<std::string>& dtype) {
  return describe(Arrays(Memory::host_or_cuda).read({function.c_str(), name}, array, dtype));
}

void bind_call(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Call>(m, "Call")
      .def(nb::init<const std::string&, std::pair<std::int64_t, std::int64_t>, double,
                    std::optional<double>, const std::string&, const std::optional<std::string>&,
                    const std::string&, const std::string&, int, int, std::string, int>(),
           nb::kw_only(), "layout"_a, "window"_a, "softcap"_a, "sm_scale"_a.none(), "precision"_a,
           "recipe"_a.none(), "softmax"_a, "accumulator"_a, "promote_every"_a, "num_splits"_a,
           "engine"_a, "threads"_a)
      .def("set", &Call::set, "name"_a, "array"_a.none(), "dtype"_a.none() = nb::none())
      .def("set_torch", &Call::set_torch, "name"_a, "tensor"_a, "dtype"_a.none() = nb::none())
      .def("fresh", &Call::fresh, "key_lengths"_a)
      .def("attend", &Call::attend, "q"_a, "k"_a, "v"_a, "out"_a.none(), "out_dtype"_a.none(),
           "return_lse"_a)
      .def("run", &Call::run)
      .def("workspace_bytes", &Call::workspace_bytes)
      .def("run_on_device", &Call::run_on_device, "stream"_a, "workspace"_a, "bytes"_a,
           "key_lengths"_a)
      .def("why_unsupported", &Call::why_unsupported);
}

void bind_quantization(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Quantization>(m, "Quantization")
      .def(nb::init<nb::handle, nb::handle, nb::handle,
                    const std::vector<std::optional<std::string>>&, const std::string&,
                    const std::string&, std::vector<std::int64_t>, std::string, int, bool>(),
           "q"_a.none(), "k"_a.none(), "v"_a.none(), nb::kw_only(), "dtypes"_a, "layout"_a,
           "recipe"_a, "key_lengths"_a, "engine"_a, "threads"_a, "torch_cuda"_a)
      .def("run", &Quantization::run)
      .def("workspace_bytes", &Quantization::workspace_bytes)
      .def("run_on_device", &Quantization::run_on_device, "stream"_a, "workspace"_a, "bytes"_a,
           "key_lengths"_a);
}

}  // namespace

NB_MODULE(_octavo, m) {
  using namespace nb::literals;
  nb::register_exception_translator(translate);
  bind_call(m);
  bind_quantization(m);
  m.def("describe", &describe_array, "function"_a, "name"_a, "array"_a.none(), "dtype"_a.none());
  m.def("copy_codes", &copy_codes, "array"_a, "dtype"_a);
  m.def("empty_on_device", &empty_on_device);
  m.def(
      "exchanges", [](nb::handle type) { return Exchange::of(type).has_value(); }, "type"_a);
  m.def("version", &version);
  m.def("engine_names", &engine_names);
  m.def("recipe_names", &recipe_names);
  m.def("simd_targets", &simd_targets);
  m.def("device_sentence", [] { return device_status().sentence; });
  m.attr("built_with_cuda") = kBuiltWithCuda;
}

}  // namespace octavo::python
