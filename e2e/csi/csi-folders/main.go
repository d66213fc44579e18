// csi-folders is a CSI driver whose volumes are folders of its node: an inline volume is one that is there already, by the attribute `folder`;
// a claim of a storage class gets one of its own, which goes with the claim. It tells the kubelet of itself. For clusters of one node.
//
//	csi-folders FOLDER KUBELET_FOLDER NODE
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const name = "folders.csi.fusionllm.io"

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	folder, node, socket string
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{
		Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: service}}},
	}, nil
}

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	rpc := &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
	return &csi.ControllerGetCapabilitiesResponse{
		Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}}},
	}, nil
}

// path is below the driver's folder, whatever is asked for.
func (d *driver) path(kind, volume string) (string, error) {
	if volume == "" || volume != filepath.Base(volume) || strings.HasPrefix(volume, ".") {
		return "", status.Errorf(codes.InvalidArgument, "%q is no name of a folder", volume)
	}
	return filepath.Join(d.folder, kind, volume), nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	path, err := d.path("claims", request.GetName())
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if err := os.Chmod(path, 0o777); err != nil { // whatever the umask is: Pods are of any user
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{
		Volume: &csi.Volume{VolumeId: request.GetName(), CapacityBytes: request.GetCapacityRange().GetRequiredBytes()},
	}, nil
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	path, err := d.path("claims", request.GetVolumeId())
	if err == nil {
		err = os.RemoveAll(path)
	}
	return &csi.DeleteVolumeResponse{}, err
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (d *driver) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	kind, volume := "claims", request.GetVolumeId()
	if folder, inline := request.GetVolumeContext()["folder"]; inline {
		kind, volume = "given", folder
	}
	path, err := d.path(kind, volume)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", volume)
	}
	target := request.GetTargetPath()
	if err := os.MkdirAll(target, 0o750); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	// Asked again, or what an attempt has left that did not come to its end: one mount, and not one over the other.
	if err := takeDown(target); err != nil {
		return nil, err
	}
	if err := syscall.Mount(path, target, "", syscall.MS_BIND, ""); err != nil {
		return nil, status.Errorf(codes.Internal, "mounting %s: %v", volume, err)
	}
	if request.GetReadonly() {
		if err := syscall.Mount("", target, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
			return nil, status.Errorf(codes.Internal, "mounting %s to be read alone: %v", volume, err)
		}
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// takeDown unmounts what is mounted there, if anything is.
func takeDown(target string) error {
	for {
		switch err := syscall.Unmount(target, 0); {
		case err == nil:
		case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOENT):
			return nil // nothing is mounted there any more
		default:
			return status.Errorf(codes.Internal, "taking %s down: %v", target, err)
		}
	}
}

func (d *driver) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := request.GetTargetPath()
	if err := takeDown(target); err != nil {
		return nil, err
	}
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// What the kubelet asks at the socket that it finds in its folder of plugins.
func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: d.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context, answer *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !answer.PluginRegistered {
		return nil, fmt.Errorf("the kubelet does not take the driver: %s", answer.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func serve(socket string, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	os.Remove(socket) // of one that was killed
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	register(server)
	return server.Serve(listener)
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: csi-folders FOLDER KUBELET_FOLDER NODE")
	}
	kubelet := os.Args[2]
	d := &driver{folder: os.Args[1], node: os.Args[3], socket: filepath.Join(kubelet, "plugins", "folders", "csi.sock")}
	failed := make(chan error)
	go func() {
		failed <- serve(d.socket, func(server *grpc.Server) {
			csi.RegisterIdentityServer(server, d)
			csi.RegisterControllerServer(server, d)
			csi.RegisterNodeServer(server, d)
		})
	}()
	go func() {
		failed <- serve(filepath.Join(kubelet, "plugins_registry", "folders.sock"), func(server *grpc.Server) {
			registration.RegisterRegistrationServer(server, d)
		})
	}()
	log.Fatal(<-failed)
}
