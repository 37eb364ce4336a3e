// Goes with client-go through what Go controllers do, with protocol buffers alone for all bodies, and says how far it came.
// The first step that fails ends it with exit code 1.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const node = "cpu-3"

func step(name string, err error) {
	if err != nil {
		fmt.Printf("failed: %s: %v\n", name, err)
		os.Exit(1)
	}
	fmt.Println("passed:", name)
}

func expect(name string, holds bool) {
	var err error
	if !holds {
		err = fmt.Errorf("expected it to hold")
	}
	step(name, err)
}

func within(ctx context.Context, name string, holds func() bool) {
	for !holds() {
		select {
		case <-ctx.Done():
			step(name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	step(name, nil)
}

func somePod() *corev1.Pod {
	zero, yes := int64(0), true
	preferred := []corev1.PreferredSchedulingTerm{{Weight: 5, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "k", Operator: corev1.NodeSelectorOpIn, Values: []string{"v"}}},
	}}}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("web")},
	}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &zero,
			AutomountServiceAccountToken:  &yes,
			Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Tolerations: []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}},
			Affinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred},
			},
			Containers: []corev1.Container{{
				Name: "c", Image: "nginx", Env: []corev1.EnvVar{{Name: "E", Value: ""}}, LivenessProbe: probe,
				Ports:        []corev1.ContainerPort{{Name: "web", ContainerPort: 80}},
				VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
				},
			}},
		},
	}
}

func someDeployment() *appsv1.Deployment {
	none, labels := int32(0), map[string]string{"d": "d"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &none,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	step("kubeconfig", err)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf" // alone, as KAI has it
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	step("client", err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	ns := fmt.Sprintf("go-%d", time.Now().UnixNano())
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	_, err = client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	step("namespace", err)

	var added, updated, deleted atomic.Int32
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	pods := factory.Core().V1().Pods().Informer()
	nodes := factory.Core().V1().Nodes().Informer()
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(any, any) { updated.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	})
	step("event handler", err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	expect("nodes in the informer", len(nodes.GetStore().List()) > 0)

	pod, err := client.CoreV1().Pods(ns).Create(ctx, somePod(), metav1.CreateOptions{})
	step("pod", err)
	expect("pod as sent", pod.Spec.Containers[0].LivenessProbe.HTTPGet.Port.StrVal == "web" &&
		pod.Spec.Volumes[0].EmptyDir != nil && *pod.Spec.TerminationGracePeriodSeconds == 0)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	step("binding", client.CoreV1().Pods(ns).Bind(ctx, binding, metav1.CreateOptions{}))

	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	step("event sink", broadcaster.StartRecordingToSinkWithContext(ctx))
	broadcaster.NewRecorder(scheme.Scheme, "go-check").Eventf(pod, nil, "Normal", "Scheduled", "Binding", "to %s", node)
	within(ctx, "event", func() bool {
		found, err := client.EventsV1().Events(ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(found.Items) == 1 && found.Items[0].Regarding.Name == "p"
	})
	within(ctx, "running pod", func() bool {
		pod, err = client.CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})

	settings := applycore.ConfigMap("settings", ns).WithData(map[string]string{"a": "b"})
	_, err = client.CoreV1().ConfigMaps(ns).Apply(ctx, settings, metav1.ApplyOptions{FieldManager: "go"})
	step("apply", err)
	zero := intstr.FromInt32(0)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &zero, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		},
	}
	budget, err = client.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, budget, metav1.CreateOptions{})
	step("budget", err)
	expect("a number that may be a word", budget.Spec.MinAvailable.Type == intstr.Int)

	deployment, err := client.AppsV1().Deployments(ns).Create(ctx, someDeployment(), metav1.CreateOptions{})
	step("deployment", err)
	expect("no replicas", *deployment.Spec.Replicas == 0)
	scale, err := client.AppsV1().Deployments(ns).GetScale(ctx, "d", metav1.GetOptions{})
	step("scale", err)
	scale.Spec.Replicas = 1
	_, err = client.AppsV1().Deployments(ns).UpdateScale(ctx, "d", scale, metav1.UpdateOptions{})
	step("scaled", err)

	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: ns}}
	within(ctx, "eviction", func() bool { return client.PolicyV1().Evictions(ns).Evict(ctx, eviction) == nil })
	within(ctx, "informer saw it go", func() bool { return deleted.Load() == 1 })

	leading, elected := context.WithCancel(ctx)
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: ns},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
	}
	go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 300 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { elected() }, OnStoppedLeading: func() {},
		},
	})
	<-leading.Done()
	within(ctx, "renewed lease", func() bool {
		lease, err := client.CoordinationV1().Leases(ns).Get(ctx, "leader", metav1.GetOptions{})
		return err == nil && *lease.Spec.HolderIdentity == "me" && lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time)
	})
	selector := metav1.ListOptions{LabelSelector: "a=b"}
	step("delete collection", client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, selector))
	step("delete namespace", client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}))
	fmt.Printf("added %d, updated %d, deleted %d\n", added.Load(), updated.Load(), deleted.Load())
}
