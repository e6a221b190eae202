// Command kubernetes holds the files of a folder against the types and the validation of the Kubernetes API: unknown fields are refused, a
// CustomResourceDefinition must have a structural schema, and every manifest of the ConfigMap must be one that its definition lets in.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, apiextensionsv1.AddToScheme, apiextensions.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	crds := map[string]*apiextensions.CustomResourceDefinition{}
	var manifests string
	var bad []error
	for _, name := range files {
		err := documents(name, func(doc []byte) error {
			obj, kind, err := decoder.Decode(doc, nil, nil)
			if err != nil {
				return err
			}
			fmt.Println(filepath.Base(name), kind.Kind)
			switch o := obj.(type) {
			case *corev1.ConfigMap:
				manifests = o.Data["manifests.yaml"]
			case *apiextensionsv1.CustomResourceDefinition:
				apiextensionsv1.SetDefaults_CustomResourceDefinition(o)
				apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&o.Spec)
				in := new(apiextensions.CustomResourceDefinition)
				if err := scheme.Convert(o, in, nil); err != nil {
					return err
				}
				in.Status.StoredVersions = []string{o.Spec.Versions[0].Name}
				if list := validation.ValidateCustomResourceDefinition(context.Background(), in); len(list) > 0 {
					return list.ToAggregate()
				}
				crds[o.Spec.Names.Kind] = in
			}
			return nil
		})
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(append(bad, resources(manifests, crds))...)
}

// resources holds the manifests against their definitions.
func resources(text string, crds map[string]*apiextensions.CustomResourceDefinition) error {
	return each([]byte(text), func(doc []byte) error {
		var v map[string]any
		if err := sigsyaml.UnmarshalStrict(doc, &v); err != nil {
			return err
		}
		kind, _ := v["kind"].(string)
		crd := crds[kind]
		if crd == nil {
			return fmt.Errorf("a manifest of kind %q has no definition", kind)
		}
		schema := crd.Spec.Validation
		if schema == nil {
			schema = crd.Spec.Versions[0].Schema
		}
		validator, _, err := schemavalidation.NewSchemaValidator(schema.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		if list := schemavalidation.ValidateCustomResource(nil, v, validator); len(list) > 0 {
			return fmt.Errorf("manifest %s: %w", kind, list.ToAggregate())
		}
		fmt.Println("manifest", kind)
		return nil
	})
}

func documents(name string, f func([]byte) error) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return each(text, f)
}

func each(text []byte, f func([]byte) error) error {
	r := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		if err := f(doc); err != nil {
			return err
		}
	}
}
