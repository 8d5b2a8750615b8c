// SPDX-License-Identifier: Apache-2.0
#include "exchange.h"

namespace octavo::python {

// Structures of DLPack 1.2's C interface, by its specification.
using Dltensor = nb::dlpack::dltensor;

struct Version {
  std::uint32_t major, minor;
};

struct ManagedTensor {
  Version version;
  void* manager;
  void (*deleter)(ManagedTensor*);
  std::uint64_t flags;
  Dltensor tensor;
};

struct ExchangeTable {
  Version version;
  const void* previous;
  int (*allocate)(Dltensor* prototype, ManagedTensor** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*object_from_managed)(ManagedTensor* tensor, void** object);
  int (*view_of_object)(void* object, Dltensor* out);
  int (*current_stream)(int device_type, std::int32_t device, void** stream);
};

namespace {

constexpr std::uint32_t kMajor = 1;
constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
constexpr const char* kCapsule = "dlpack_exchange_api";

/// The exception that PyTorch raises where it allocates itself: its function in C calls every
/// failure a MemoryError.
nb::object exception_for(const std::string& message) {
  if (message.find("out of memory") == std::string::npos) return nb::borrow(PyExc_RuntimeError);
  const nb::object torch = nb::steal(PyImport_GetModule(nb::str("torch").ptr()));
  if (torch.is_valid())
    return nb::getattr(torch, "OutOfMemoryError", nb::borrow(PyExc_MemoryError));
  PyErr_Clear();
  return nb::borrow(PyExc_MemoryError);
}

void keep_message(void* context, const char*, const char* message) {
  *static_cast<std::string*>(context) = message;
}

}  // namespace

std::optional<Exchange> Exchange::of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, kAttribute, nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsule)) return std::nullopt;
  const auto* table =
      static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  if (table->version.major != kMajor || table->view_of_object == nullptr) return std::nullopt;
  return Exchange(*table);
}

TensorView Exchange::view(const Argument& argument, nb::handle tensor,
                          const std::optional<std::string>& stated) const {
  Dltensor found;
  if (table_->view_of_object(tensor.ptr(), &found) != 0) throw nb::python_error();
  return view_of(argument, found, stated, Memory::host_or_cuda);
}

ManagedTensor* Exchange::allocate(std::int64_t* shape, int rank, nb::dlpack::dtype dtype,
                                  int device) const {
  Dltensor prototype;
  prototype.device = {nb::device::cuda::value, device};
  prototype.ndim = rank;
  prototype.dtype = dtype;
  prototype.shape = shape;
  ManagedTensor* made = nullptr;
  std::string message;
  if (table_->allocate(&prototype, &made, &message, keep_message) != 0) {
    if (PyErr_Occurred()) throw nb::python_error();
    PyErr_SetString(exception_for(message).ptr(), message.c_str());
    throw nb::python_error();
  }
  return made;
}

nb::object Exchange::empty(std::vector<std::int64_t> shape, DType dtype, int device) const {
  ManagedTensor* made =
      allocate(shape.data(), static_cast<int>(shape.size()), dlpack_dtype(dtype), device);
  void* object = nullptr;
  if (table_->object_from_managed(made, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

CudaStream Exchange::current_stream(int device) const {
  void* stream = nullptr;
  if (table_->current_stream(nb::device::cuda::value, device, &stream) != 0) {
    throw nb::python_error();
  }
  return static_cast<CudaStream>(stream);
}

Exchange::Buffer::Buffer(const Exchange& exchange, std::size_t bytes, int device) {
  if (bytes == 0) return;
  auto extent = static_cast<std::int64_t>(bytes);
  const auto code = static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt);
  memory_ = exchange.allocate(&extent, 1, {code, 8, 1}, device);
}

Exchange::Buffer::~Buffer() {
  if (memory_ != nullptr && memory_->deleter != nullptr) memory_->deleter(memory_);
}

void* Exchange::Buffer::data() const {
  if (memory_ == nullptr) return nullptr;
  return static_cast<std::byte*>(memory_->tensor.data) + memory_->tensor.byte_offset;
}

}  // namespace octavo::python
